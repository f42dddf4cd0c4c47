#include "backends/docker/family.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::docker {

namespace {

constexpr std::size_t kLongest = 4096;

// The names of processes have at most 15 characters.
bool is_shim(const std::string& name) { return name.starts_with("containerd-shim"); }
bool is_engine(const std::string& name) { return name == "dockerd" || name == "podman"; }

const HostProcess* find(const HostProcesses& all, pid_t process) {
  const auto found = all.find(process);
  return found == all.end() ? nullptr : &found->second;
}

// The folder of the file that follows an option among the words of a process.
std::string folder_after(const std::string& words, std::string_view option) {
  std::string wanted(1, '\0');
  wanted.append(option).push_back('\0');
  const std::size_t at = words.find(wanted);
  if (at == std::string::npos) {
    return {};
  }
  const std::size_t begin = at + wanted.size();
  const std::string path = words.substr(begin, words.find('\0', begin) - begin);
  return path.substr(0, path.rfind('/') + 1);
}

// The engine that has started a containerd for itself, which several can share otherwise.
Employer employer_of_containerd(const HostProcesses& all, const HostProcess& containerd) {
  const HostProcess* const above = find(all, containerd.parent);
  return above != nullptr && is_engine(above->name)
             ? Employer{Employer::Kind::kKnown, containerd.parent}
             : Employer{Employer::Kind::kSome, 0};
}

// A shim is nobody's child. It was told where its containerd listens, and an engine that starts one
// has the settings of it in the same folder.
Employer employer_of_shim(const HostProcesses& all, const HostProcess& shim) {
  const std::string folder = folder_after(shim.words, "-address");
  for (const auto& [number, process] : all) {
    if (!folder.empty() && process.name == "containerd" &&
        folder_after(process.words, "--config") == folder) {
      return employer_of_containerd(all, process);
    }
  }
  return {Employer::Kind::kSome, 0};
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

bool builds_sandbox(const HostProcess& process, std::uint64_t since) {
  return process.name == "exe" && process.started >= since;
}

std::uint64_t ticks_now() {
  timespec now{};
  (void)::clock_gettime(CLOCK_BOOTTIME, &now);
  constexpr std::uint64_t kNanoseconds = 1'000'000'000;
  const auto each = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * each +
         static_cast<std::uint64_t>(now.tv_nsec) * each / kNanoseconds;
}

bool starts_helpers(const std::string& name) { return is_engine(name); }

Employer employer_of(const HostProcesses& all, pid_t process) {
  constexpr int kDeepest = 64;  // numbers may be given anew while they are read
  const HostProcess* found = find(all, process);
  for (int above = 0; found != nullptr && above < kDeepest; ++above) {
    if (is_engine(found->name)) {
      return {Employer::Kind::kKnown, process};
    }
    if (found->name == "containerd") {
      return employer_of_containerd(all, *found);
    }
    if (is_shim(found->name)) {
      return employer_of_shim(all, *found);
    }
    if (found->name == "conmon") {
      return {Employer::Kind::kSome, 0};
    }
    process = found->parent;
    found = find(all, process);
  }
  return {};
}

pid_t engine_at(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path) {
    return 0;
  }
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  // Whoever does not take calls any more must not be waited for here.
  const UniqueFd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (!stream.valid() ||
      ::connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::getsockopt(stream.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return 0;
  }
  const TaskState task = parse_task(read_proc("/proc/" + std::to_string(peer.pid) + "/stat"));
  return is_engine(task.name) ? peer.pid : 0;
}

HostProcesses look_around() {
  HostProcesses all;
  for (const std::string& number : numbers_in("/proc")) {
    const std::string process = "/proc/" + number;
    TaskState task = parse_task(read_proc(process + "/stat"));
    const bool told = task.name == "containerd" || is_shim(task.name);
    all[std::atoi(number.c_str())] = {std::move(task.name), task.parent,
                                      told ? read_proc(process + "/cmdline") : std::string(),
                                      task.started};
  }
  return all;
}

TaskState parse_task(const std::string& text) {
  // A name may hold anything, parentheses too.
  const std::size_t begin = text.find('(');
  const std::size_t end = text.rfind(')');
  TaskState task;
  if (begin == std::string::npos || end == std::string::npos || end < begin ||
      end + 2 >= text.size()) {
    return task;
  }
  task.name = text.substr(begin + 1, end - begin - 1);
  task.state = text[end + 2];
  std::string_view rest = std::string_view(text).substr(end + 2);
  constexpr int kParent = 1;
  constexpr int kUser = 11;  // after the state: the times in user and in kernel mode
  constexpr int kKernel = 12;
  constexpr int kStarted = 19;
  for (int field = 0; field <= kStarted; ++field) {
    const std::string value(rest.substr(0, rest.find(' ')));
    if (field == kParent) {
      task.parent = std::atoi(value.c_str());
    } else if (field == kUser || field == kKernel) {
      task.ticks += std::strtoull(value.c_str(), nullptr, 10);
    } else if (field == kStarted) {
      task.started = std::strtoull(value.c_str(), nullptr, 10);
    }
    const std::size_t space = rest.find(' ');
    rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
  }
  return task;
}

std::string read_proc(const std::string& path) {
  auto text = read_file_at(AT_FDCWD, path, kLongest);
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

}  // namespace carrel::docker
