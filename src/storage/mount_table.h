#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/mounts.h"

namespace carrel::storage {

// The mounts of this process's namespace, as /proc/self/mountinfo has them. A bind mount shows
// there which folder of which file system it is; nothing else tells.
struct HostMount {
  std::uint64_t id = 0;
  std::string device;       // "8:1"
  std::string root;         // which folder of that file system
  std::string mount_point;  // where it is seen
  std::string file_system;  // its type
};

// A line that cannot be understood is an error: a mount that is not known cannot be judged.
Result<std::vector<HostMount>> parse_mountinfo(std::string_view text);

Result<std::vector<HostMount>> read_mount_table();

// Where the opened file or folder is. An error if it is on no mount of the table, or was removed or
// moved out of reach meanwhile.
Result<policy::Location> locate(int fd, const std::vector<HostMount>& table);

}  // namespace carrel::storage
