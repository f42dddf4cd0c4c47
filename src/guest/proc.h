#pragma once

#include <dirent.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

// Reading /proc. What it says is what the workload let it become.
namespace carrel::guest {

// Decimal digits and nothing else.
bool to_number(std::string_view text, std::uint64_t& value);

// The beginning of a file of /proc; how much there was, 0 when it cannot be read.
std::size_t read_proc(const char* path, char* buffer, std::size_t size);
// The same for /proc/PID/NAME.
std::size_t read_proc(pid_t pid, const char* name, char* buffer, std::size_t size);

// Calls `visit` with the number of each process.
template <typename Visit>
void each_pid(Visit visit) {
  DIR* proc = opendir("/proc");
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

}  // namespace carrel::guest
