#include "support/box.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>

#include "support/host.h"
#include "support/place.h"
#include "support/walls.h"

namespace carrel::test {

namespace {

nlohmann::json parsed(const Run& run) {
  auto object = nlohmann::json::parse(run.out, nullptr, false);
  if (!object.is_object()) {
    ADD_FAILURE() << "not an object: '" << run.out.substr(0, 500) << "' " << run.err << " (status "
                  << run.status << ", signal " << run.signal << ")";
    return nlohmann::json::object();
  }
  return object;
}

}  // namespace

Box::Box(As as, std::vector<std::string> options) : as_(as) {
  options.insert(options.begin(), "create");
  Run run = carrel(as_, options);
  EXPECT_EQ(run.status, 0) << run.err;
  id_ = run.out.substr(0, run.out.find('\n'));
  EXPECT_EQ(id_.size(), 36U) << run.out;
}

Run Box::sh(const std::string& text, std::vector<std::string> options, const Options& how) const {
  options.insert(options.begin(), "sh");
  options.insert(options.end(), {id_, text});
  return carrel(as_, options, how);
}

nlohmann::json Box::result(const std::string& text, std::vector<std::string> options) const {
  options.emplace_back("--json");
  return parsed(sh(text, options));
}

Run Box::exec(std::vector<std::string> words, const Options& how) const {
  words.insert(words.begin(), {"exec", id_, "--"});
  return carrel(as_, words, how);
}

nlohmann::json Box::info() const { return parsed(carrel(as_, {"info", "--json", id_})); }

std::vector<nlohmann::json> Box::events() const {
  std::istringstream lines(carrel(as_, {"logs", "--json", id_}).out);
  std::vector<nlohmann::json> found;
  std::string line;
  while (std::getline(lines, line)) {
    found.push_back(nlohmann::json::parse(line, nullptr, false));
  }
  return found;
}

Run Box::remove(std::vector<std::string> options) const {
  options.insert(options.begin(), "rm");
  options.push_back(id_);
  return carrel(as_, options);
}

pid_t Box::first_process() const {
  // Number 1 in the process namespace that a command of this sandbox says it is in.
  Run run = carrel(as_, {"exec", id_, "--", "readlink", "/proc/self/ns/pid"});
  // Of an engine's container it is none of the processes below this test.
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failed)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || !status_field(pid, "NSpid").ends_with("\t1")) {
      continue;
    }
    const std::string space = std::filesystem::read_symlink(entry.path() / "ns/pid", failed);
    if (space + "\n" == run.out) {
      return pid;
    }
  }
  // Behind a kernel of its own the names of namespaces are others: who stands for it on the host.
  if (walls().isolation() != "namespace") {
    const std::string record =
        read_text(place().home(as_) + "/run/box/" + id_ + "/record").value_or("");
    const std::size_t at = record.find("\npid=");
    const int pid = at == std::string::npos ? 0 : std::atoi(record.c_str() + at + 5);
    if (pid > 1) {
      return pid;
    }
  }
  ADD_FAILURE() << "no first process of " << id_ << " (" << run.out << run.err << ")";
  // CRITICAL: tests end what they get here, and -1 is everybody. Nobody has this number.
  return std::numeric_limits<pid_t>::max();
}

}  // namespace carrel::test
