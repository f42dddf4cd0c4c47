#include "backends/docker/working.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/files.h"

namespace carrel::docker {

namespace {

constexpr std::size_t kLongestStat = 4096;
// What an engine uses to answer questions of ours, and to look around while it has nothing to do.
constexpr std::uint64_t kLittle = 20'000'000;
constexpr std::uint64_t kTick = 10'000'000;

std::string read_text(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path, kLongestStat);
  return text.ok() ? std::move(text.value()) : std::string();
}

std::vector<std::string> numbers_in(const std::string& directory) {
  std::vector<std::string> numbers;
  auto opened = open_at(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY);
  if (!opened.ok()) {
    return numbers;
  }
  auto names = list_directory(opened.value().get());
  for (std::string& name : names.ok() ? names.value() : numbers) {
    if (!name.empty() && name.front() >= '0' && name.front() <= '9') {
      numbers.push_back(std::move(name));
    }
  }
  return numbers;
}

std::string name_of(const std::string& process) {
  std::string name = read_text(process + "/comm");
  if (!name.empty()) {
    name.pop_back();
  }
  return name;
}

struct Use {
  std::uint64_t nanoseconds = 0;  // of a processor
  bool waits = false;             // for a disk
};

// On a busy host everybody who wakes up for a moment waits for a processor, so that this counts
// only where the kernel does not tell how long each task had one.
Use use_of(const std::string& process) {
  Use use;
  const std::string tasks = process + "/task";
  for (const std::string& number : numbers_in(tasks)) {
    const TaskState task = parse_task(read_text(tasks + "/" + number + "/stat"));
    const std::string times = read_text(tasks + "/" + number + "/schedstat");
    use.nanoseconds +=
        times.empty() ? task.ticks * kTick : std::strtoull(times.c_str(), nullptr, 10);
    use.waits = use.waits || task.state == 'D' || (times.empty() && task.state == 'R');
  }
  return use;
}

}  // namespace

bool works_for_engine(const std::string& name) {
  // A sandbox of gVisor's is "runsc-sandbox" and the like: it works for itself.
  constexpr std::array<std::string_view, 9> kPrograms = {"dockerd", "containerd", "containerd-shim",
                                                         "runc",    "crun",       "runsc",
                                                         "podman",  "conmon",     "fuse-overlayfs"};
  return name.starts_with("runc:[") ||
         std::find(kPrograms.begin(), kPrograms.end(), name) != kPrograms.end();
}

bool starts_helpers(const std::string& name) { return name == "podman" || name == "dockerd"; }

TaskState parse_task(const std::string& text) {
  // A name may hold anything, parentheses too.
  const std::size_t end = text.rfind(')');
  TaskState task;
  if (end == std::string::npos || end + 2 >= text.size()) {
    return task;
  }
  task.state = text[end + 2];
  std::string_view rest = std::string_view(text).substr(end + 2);
  constexpr int kParent = 1;
  constexpr int kUser = 11;  // after the state: the times in user and in kernel mode
  constexpr int kKernel = 12;
  for (int field = 0; field <= kKernel; ++field) {
    if (field == kParent) {
      task.parent = std::atoi(std::string(rest.substr(0, rest.find(' '))).c_str());
    }
    if (field >= kUser) {
      task.ticks += std::strtoull(std::string(rest.substr(0, rest.find(' '))).c_str(), nullptr, 10);
    }
    const std::size_t space = rest.find(' ');
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  return task;
}

bool Working::counts(const std::string& process, pid_t parent) const {
  struct stat info{};
  const std::string name = name_of(process);
  return (works_for_engine(name) || starts_helpers(name_of("/proc/" + std::to_string(parent)))) &&
         ::stat(process.c_str(), &info) == 0 && (info.st_uid == 0 || info.st_uid == owner_);
}

bool Working::look() {
  std::uint64_t used = 0;
  bool waits = false;
  for (const std::string& number : numbers_in("/proc")) {
    const std::string process = "/proc/" + number;
    const TaskState task = parse_task(read_text(process + "/stat"));
    if ((known_ > 0 && number == std::to_string(known_)) || counts(process, task.parent)) {
      const Use use = use_of(process);
      used += use.nanoseconds;
      waits = waits || use.waits;
    }
  }
  // Helpers that have ended take their time with them: less than before is work as well.
  const bool works = waits || used >= used_ + kLittle || used + kLittle <= used_;
  const bool first = std::exchange(looked_, true) == false;
  if (works || first) {
    used_ = used;  // a little, again and again, is work as well
  }
  return works && (waits || !first);
}

std::chrono::milliseconds Working::quiet() {
  const auto now = std::chrono::steady_clock::now();
  if (look()) {
    busy_ = now;
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - busy_);
}

}  // namespace carrel::docker
