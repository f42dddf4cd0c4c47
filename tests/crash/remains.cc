#include "remains.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "support/host.h"
#include "support/place.h"
#include "support/walls.h"

namespace carrel::test {

namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (auto it = fs::directory_iterator(directory, failed);
       !failed && it != fs::directory_iterator(); it.increment(failed)) {
    names.push_back(it->path().filename());
  }
  return names;
}

bool is_keeper(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::error_code failed;
  auto words = read_text(process + "/cmdline");
  return fs::read_symlink(process + "/exe", failed) == place().program() && words.has_value() &&
         words->find(std::string("\0keeper\0", 8)) != std::string::npos;
}

std::string field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with(key + "=")) {
      return line.substr(key.size() + 1);
    }
  }
  return {};
}

}  // namespace

std::vector<pid_t> keepers() {
  std::vector<pid_t> found;
  for (const HostProcess& process : descendants()) {
    if (is_keeper(process.pid)) {
      found.push_back(process.pid);
    }
  }
  return found;
}

void kill_keepers() {
  for (pid_t pid : keepers()) {
    ::kill(pid, SIGKILL);
    eventually(std::chrono::seconds(5), [&] {
      const std::string state = status_field(pid, "State");
      return state.empty() || state[0] == 'Z';
    });
  }
}

std::vector<pid_t> first_processes() {
  std::vector<pid_t> found;
  for (const HostProcess& process : descendants()) {
    const std::string inner = status_field(process.pid, "NSpid");
    if (inner.ends_with("\t1") && !is_nursery(process)) {
      found.push_back(process.pid);
    }
  }
  return found;
}

std::set<std::string> live_boxes(As as) {
  std::set<std::string> alive;
  for (const std::string& id : names_in(place().home(as) + "/run/box")) {
    auto record = read_text(place().home(as) + "/run/box/" + id + "/record");
    if (!record.has_value()) {
      continue;
    }
    const std::string state =
        status_field(static_cast<pid_t>(std::atoi(field(*record, "pid").c_str())), "State");
    if (!state.empty() && state[0] != 'Z' && state[0] != 'X') {
      alive.insert(id);
    }
  }
  return alive;
}

std::string inconsistencies(As as) {
  const std::set<std::string> alive = live_boxes(as);
  const std::string home = place().home(as);
  std::string wrong;
  auto expect_alive = [&](const std::string& what, const std::string& id) {
    if (alive.count(id) == 0) {
      wrong += what + " of " + id + "\n";
    }
  };
  for (const std::string& id : names_in(home + "/run/once")) {
    wrong += "mark of " + id + "\n";
  }
  for (const std::string& id : names_in(home + "/run/box")) {
    expect_alive("box", id);
  }
  for (const std::string& number : names_in(home + "/run/ids")) {
    std::error_code failed;
    expect_alive("ids", fs::read_symlink(home + "/run/ids/" + number, failed));
  }
  for (const std::string& name : names_in(home)) {
    wrong += name.ends_with(".new") ? "file " + name + "\n" : "";
  }
  const std::string prefix = "carrel-" + place().label(as) + "-";
  for (const std::string& group : groups_of(place().label(as))) {
    const fs::path path = group;
    if (const std::string name = path.filename();
        name.starts_with(prefix) && !is_idle_place(group)) {
      expect_alive("group in " + path.parent_path().string(), name.substr(prefix.size()));
    }
  }
  // Those of an engine's containers are below the engine.
  const std::size_t first = first_processes().size();
  const std::size_t each = walls().gvisor() ? 2 : 1;  // its kernel has a file server beside it
  if (first != alive.size() * each && walls().backend != "docker") {
    wrong += std::to_string(first) + " first processes for " + std::to_string(alive.size()) +
             " sandboxes\n";
  }
  for (const HostProcess& process : descendants()) {
    if (alive.empty() && !is_keeper(process.pid) && !is_nursery(process)) {
      wrong += "process " + std::to_string(process.pid) + " " + process.name + "\n";
    }
  }
  return wrong;
}

std::string lasting_inconsistencies(As as) {
  std::string wrong;
  eventually(std::chrono::seconds(3), [&] {
    wrong = inconsistencies(as);
    return wrong.empty();
  });
  return wrong;
}

}  // namespace carrel::test
