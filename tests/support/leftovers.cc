#include "support/leftovers.h"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "support/host.h"
#include "support/place.h"
#include "support/workspace_files.h"

namespace carrel::test {

namespace {

namespace fs = std::filesystem;

constexpr int kLooks = 100;  // at processes that do not stand still

bool is_keeper(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  std::error_code failed;
  auto words = read_text(process + "/cmdline");
  return fs::read_symlink(process + "/exe", failed) == place().program() && words.has_value() &&
         (words->find(std::string("\0keeper\0", 8)) != std::string::npos ||
          words->find(std::string("\0egress\0", 8)) != std::string::npos ||
          words->find(std::string("\0disk-watch\0", 12)) != std::string::npos);
}

template <typename Visit>
void walk(const std::string& path, Visit visit) {
  std::error_code failed;
  auto it = fs::recursive_directory_iterator(path, failed);
  while (!failed && it != fs::recursive_directory_iterator()) {
    visit(*it);
    it.increment(failed);
  }
}

}  // namespace

std::vector<HostProcess> other_than_keepers() {
  std::vector<HostProcess> found;
  bool changed = true;
  for (int look = 0; changed && look < kLooks; ++look) {
    found = descendants();
    std::erase_if(found, [](const HostProcess& process) {
      return is_keeper(process.pid) || is_nursery(process);
    });
    // A process that becomes another program at this moment has the name of the one and the file
    // of the other, or no words yet: nobody can tell which it is.
    changed = std::any_of(found.begin(), found.end(), [](const HostProcess& process) {
      const std::string folder = "/proc/" + std::to_string(process.pid);
      return read_text(folder + "/comm") != process.name + "\n" ||
             read_text(folder + "/cmdline").value_or("").empty();
    });
  }
  return found;
}

Leftovers Leftovers::snapshot() {
  Leftovers result;
  for (const HostProcess& process : other_than_keepers()) {
    result.found_.insert("process " + std::to_string(process.pid) + " " + process.name);
  }
  std::error_code ignored;
  for (As as : {As::kRoot, As::kUser}) {
    for (const std::string& group : groups_of(place().label(as))) {
      if (!is_idle_place(group)) {
        result.found_.insert("group " + group);
      }
    }
    walk(place().home(as) + "/run", [&](const fs::directory_entry& entry) {
      // The directories right below are part of the home; what is in them is somebody's.
      const fs::path relative = entry.path().lexically_relative(place().home(as) + "/run");
      const bool keepers = relative.string().starts_with("keeper") || relative == "nursery" ||
                           relative == "one-shots" || relative == "places" ||
                           relative == "serve.lock" || relative == "disk-watch.lock" ||
                           relative.string().starts_with("egress");
      if (!keepers && (!entry.is_directory(ignored) || relative.has_parent_path())) {
        result.found_.insert("file " + entry.path().string());
      }
    });
    if (const std::string devices = loop_devices_of(as); !devices.empty()) {
      result.found_.insert("loop devices " + devices);
    }
    walk(place().temporary(as), [&](const fs::directory_entry& entry) {
      result.found_.insert("file " + entry.path().string());
    });
  }
  std::istringstream mounts(read_text("/proc/self/mounts").value_or(""));
  std::string line;
  while (std::getline(mounts, line)) {
    result.found_.insert("mount " + line);
  }
  return result;
}

std::string Leftovers::since(const Leftovers& before) const {
  std::string text;
  for (const std::string& one : found_) {
    if (before.found_.count(one) == 0) {
      text += one + "\n";
    }
  }
  return text;
}

std::string left_since(const Leftovers& before) {
  std::string left;
  eventually(std::chrono::seconds(8), [&] {
    left = Leftovers::snapshot().since(before);
    return left.empty();
  });
  return left;
}

}  // namespace carrel::test
