#include "bench/memory_groups.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <sstream>

#include "base/files.h"

namespace carrel::bench {

namespace {

std::string text_of(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path);
  return text.ok() ? text.value() : std::string();
}

}  // namespace

std::uint64_t value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with(key + " ")) {
      std::uint64_t value = 0;
      std::from_chars(line.data() + key.size() + 1, line.data() + line.size(), value);
      return value;
    }
  }
  return 0;
}

Result<MemoryGroups> MemoryGroups::find() {
  MemoryGroups groups;
  std::istringstream lines(text_of("/proc/self/mounts"));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string source;
    std::string where;
    std::string type;
    std::string options;
    words >> source >> where >> type >> options;
    if (type == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos) {
      groups.version_ = Version::kV1;
      groups.top_ = where;
      return groups;
    }
    const std::string controllers = " " + text_of(where + "/cgroup.controllers") + " ";
    if (type == "cgroup2" && controllers.find("memory") != std::string::npos) {
      groups.version_ = Version::kV2;
      groups.top_ = where;
    }
  }
  if (groups.top_.empty()) {
    return Error{Code::kUnsupported, 0, "no control group of this host counts memory", {}};
  }
  return groups;
}

std::uint64_t MemoryGroups::bytes(const std::string& path) const {
  const std::string group = top_ + "/" + path;
  const std::string counters = text_of(group + "/memory.stat");
  if (version_ == Version::kV2) {
    return value_of(counters, "anon") + value_of(counters, "file") + value_of(counters, "kernel");
  }
  std::uint64_t kernel = 0;
  const std::string text = text_of(group + "/memory.kmem.usage_in_bytes");
  std::from_chars(text.data(), text.data() + text.size(), kernel);
  return value_of(counters, "total_rss") + value_of(counters, "total_cache") + kernel;
}

bool MemoryGroups::has(const std::string& path) const {
  return ::access((top_ + "/" + path + "/memory.stat").c_str(), F_OK) == 0;
}

Result<std::string> MemoryGroups::make(const std::string& path) const {
  const std::string group = top_ + "/" + path;
  if (::mkdir(group.c_str(), 0755) != 0 && errno != EEXIST) {
    return system_error("make the control group " + path);
  }
  if (version_ == Version::kV1) {
    return group + "/tasks";
  }
  // The parent counts for its children; it fails for one that holds processes itself.
  const std::string parent = group.substr(0, group.rfind('/'));
  (void)write_value_at(AT_FDCWD, parent + "/cgroup.subtree_control", "+memory");
  return group + "/cgroup.procs";
}

void MemoryGroups::remove(const std::string& path) const {
  const std::string group = top_ + "/" + path;
  for (int attempt = 0; attempt < 50 && ::rmdir(group.c_str()) != 0 && errno == EBUSY; ++attempt) {
    ::usleep(10'000);
  }
}

}  // namespace carrel::bench
