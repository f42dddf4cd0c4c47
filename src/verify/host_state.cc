#include "verify/host_state.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "base/files.h"
#include "base/sha256.h"
#include "base/unique_fd.h"

namespace carrel::verify {

namespace {

constexpr std::size_t kLargestFile = 4U << 20;

std::string read_or(const std::string& path, const char* otherwise) {
  auto text = read_file_at(AT_FDCWD, path, kLargestFile);
  return text.ok() ? text.value() : otherwise;
}

}  // namespace

std::string state_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return "missing";
  }
  return sha256(read_or(path, "unreadable")) + "|" + std::to_string(info.st_ino) + "|" +
         std::to_string(info.st_mode) + "|" + std::to_string(info.st_size) + "|" +
         std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec);
}

std::map<std::string, std::string> host_state() {
  std::map<std::string, std::string> state;
  for (const char* path : {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
                           "/sys/kernel/uevent_helper", "/proc/sys/kernel/hostname"}) {
    state[path] = read_or(path, "missing");
  }
  for (const char* path : {"/etc/passwd", "/etc/shadow", "/usr/bin/env", "/etc/ld.so.cache"}) {
    state[path] = state_of(path);
  }
  // The modules by name: how often each is used changes by itself.
  std::istringstream modules(read_or("/proc/modules", ""));
  for (std::string line; std::getline(modules, line);) {
    state["the kernel's modules"] += line.substr(0, line.find(' ')) + "\n";
  }
  return state;
}

std::vector<std::string> changed_since(const std::map<std::string, std::string>& before) {
  std::vector<std::string> changed;
  const std::map<std::string, std::string> now = host_state();
  for (const auto& [what, state] : before) {
    if (const auto found = now.find(what); found == now.end() || found->second != state) {
      changed.push_back(what);
    }
  }
  return changed;
}

std::size_t count_processes(const std::string& word) {
  std::size_t count = 0;
  (void)each_visible_entry_at(AT_FDCWD, "/proc", [&](const dirent& entry) {
    const std::string name = entry.d_name;
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      const std::string words = read_or("/proc/" + name + "/cmdline", "");
      count += words.c_str() == word ? 1U : 0U;
    }
  });
  return count;
}

std::string path_in_its_file_system(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
  std::istringstream about(read_or("/proc/self/fdinfo/" + std::to_string(fd.get()), ""));
  std::string wanted;
  for (std::string key, value; about >> key >> value;) {
    if (key == "mnt_id:") {
      wanted = value;
    }
  }
  std::istringstream lines(read_or("/proc/self/mountinfo", ""));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, parent, device, root, place;
    fields >> number >> parent >> device >> root >> place;
    if (number == wanted) {
      const std::string below = path.substr(place == "/" ? 0 : place.size());
      return root == "/" && !below.empty() ? below : root + below;
    }
  }
  return path;
}

}  // namespace carrel::verify
