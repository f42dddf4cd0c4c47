#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "guest/runtime.h"

// Reading /proc. What it says is what the workload let it become.
namespace carrel::guest {

// Decimal digits and nothing else.
bool to_number(std::string_view text, std::uint64_t& value);

// The beginning of a file of /proc; how much there was, 0 when it cannot be read.
std::size_t read_proc(const char* path, char* buffer, std::size_t size);
// The same for /proc/PID/NAME.
std::size_t read_proc(pid_t pid, const char* name, char* buffer, std::size_t size);

// Calls `visit` with each entry of the directory that is a number.
template <typename Visit>
void each_number(const char* directory, Visit visit) {
  DIR* proc = opendir(directory);
  if (proc == nullptr) {
    return;
  }
  while (struct dirent* entry = readdir(proc)) {
    std::uint64_t pid = 0;
    if (to_number(entry->d_name, pid)) {
      visit(static_cast<pid_t>(pid));
    }
  }
  closedir(proc);
}

// Calls `visit` with the number of each process.
template <typename Visit>
void each_pid(Visit visit) {
  each_number("/proc", visit);
}

// And with the number of each thread of one.
template <typename Visit>
void each_thread(pid_t pid, Visit visit) {
  Text<64> path;
  path.add("/proc/").add_number(static_cast<std::uint64_t>(pid)).add("/task");
  each_number(path.c_str(), visit);
}

}  // namespace carrel::guest
