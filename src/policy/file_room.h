#pragma once

#include <cstdint>
#include <string>

#include "policy/spec.h"

namespace carrel::policy {

// How large a sandbox's file systems in memory are made. CRITICAL: with the memory of their files
// they count against the memory limit, and what is in them outlives its writer. So together, with
// what the kernel needs for each file, they hold three quarters of it at most: a file that does not
// fit is ENOSPC, never the end of a program, and a quarter is left for programs. What is asked for
// is given as long as there is room; then the larger ones get equal parts of the rest.
struct FileRoom {
  std::uint64_t disk_bytes = 0;  // HOME, and /workspace where that is no named one
  std::uint64_t tmp_bytes = 0;   // /tmp and /dev/shm
  std::uint64_t root_bytes = 0;  // what is written to a writable root; zero: there is none
};
FileRoom file_room(const Spec& spec);

// "/workspace and HOME hold 207 MiB, /tmp 100 MiB, in memory"
std::string file_room_text(const Spec& spec);

}  // namespace carrel::policy
