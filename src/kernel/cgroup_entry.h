#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/cgroup_text.h"

namespace carrel::kernel {

// The files of one cgroup, reached from an open directory above it. Internal to the cgroup code and
// made for the path on which every system call counts: no heap, and failures are errno values.

// "group/file" as a C string; too long a path leaves `fits` false.
struct EntryPath {
  EntryPath(std::string_view group, std::string_view file);
  char text[512];
  bool fits = false;
};

// Writes `value` with one write(2). 0, or the errno.
int write_entry(int home, std::string_view group, std::string_view file, std::string_view value);

// A descriptor of the file, or the negative errno.
int open_entry(int home, std::string_view group, std::string_view file, int flags);

// A small file, read with one read(2): what is beyond the buffer is not seen.
class SmallEntry {
 public:
  SmallEntry(int home, std::string_view group, std::string_view file);
  [[nodiscard]] int error() const { return error_; }
  [[nodiscard]] std::string_view text() const { return {data_, size_}; }

 private:
  char data_[4096];
  std::size_t size_ = 0;
  int error_ = 0;
};

// The names of the groups directly in the directory; an unreadable directory has none.
std::vector<std::string> child_groups(int home, const std::string& group);

// `group` and every group below it, the deepest first.
std::vector<std::string> groups_deepest_first(int home, const std::string& group);

// Turns on `wanted` for the children of `group` (v2) and says which of them are on afterwards. In a
// group that holds processes itself nothing is turned on.
//
// CRITICAL: the kernel would take `pids` and `cpu` there, and by that make the group the root of a
// threaded subtree, in which no process can be placed any more.
ControllerSet enable_controllers(int home, std::string_view group, ControllerSet wanted);

}  // namespace carrel::kernel
