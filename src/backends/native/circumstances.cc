#include "backends/native/circumstances.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "base/files.h"

namespace carrel::native {

namespace {

// The guest sets these itself; of whoever made it only the hard limit counts.
constexpr std::array kSetByTheGuest = {RLIMIT_CORE,       RLIMIT_NOFILE,  RLIMIT_NPROC,
                                       RLIMIT_FSIZE,      RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE,
                                       RLIMIT_SIGPENDING, RLIMIT_RTPRIO,  RLIMIT_NICE};

template <typename Value>
void add(std::string& text, const Value& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void add_limits(std::string& text) {
  for (int resource = 0; resource < RLIMIT_NLIMITS; ++resource) {
    rlimit limit{};
    (void)::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    add(text, limit.rlim_max);
    if (std::find(kSetByTheGuest.begin(), kSetByTheGuest.end(), resource) == kSetByTheGuest.end()) {
      add(text, limit.rlim_cur);
    }
  }
}

void add_scheduling(std::string& text) {
  constexpr int kProcess = 1;  // IOPRIO_WHO_PROCESS
  add(text, ::syscall(SYS_sched_getscheduler, 0));
  add(text, ::getpriority(PRIO_PROCESS, 0));
  add(text, ::syscall(SYS_ioprio_get, kProcess, 0));
  std::array<unsigned char, 1024> processors{};
  add(text, ::syscall(SYS_sched_getaffinity, 0, processors.size(), processors.data()));
  text.append(reinterpret_cast<const char*>(processors.data()), processors.size() / 8);
}

void add_place(std::string& text) {
  for (const char* path : {"/proc/self/ns/user", "/proc/self/ns/mnt", "/proc/self/ns/pid",
                           "/proc/self/ns/cgroup", "/"}) {
    struct stat info{};
    (void)::stat(path, &info);
    add(text, info.st_dev);
    add(text, info.st_ino);
  }
}

}  // namespace

std::optional<std::string> circumstances() {
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 0) {
    return std::nullopt;
  }
  std::string text;
  auto groups = read_file_at(AT_FDCWD, "/proc/self/cgroup", 16U << 10);
  if (!groups.ok()) {
    return std::nullopt;
  }
  text = groups.value();
  add_limits(text);
  add_scheduling(text);
  add_place(text);
  std::array<gid_t, 256> list{};
  const int count = ::getgroups(static_cast<int>(list.size()), list.data());
  if (count < 0) {
    return std::nullopt;
  }
  text.append(reinterpret_cast<const char*>(list.data()),
              static_cast<std::size_t>(count) * sizeof(gid_t));
  add(text, ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  return text;
}

}  // namespace carrel::native
