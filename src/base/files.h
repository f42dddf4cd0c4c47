#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel {

// Small files and descriptors. Everything is opened close-on-exec; `dir` is a directory descriptor
// or AT_FDCWD.

Result<UniqueFd> open_at(int dir, const std::string& path, int flags, unsigned mode = 0);

// The whole file, at most `limit` bytes of it; more is an error (kResource).
Result<std::string> read_file_at(int dir, const std::string& path, std::size_t limit = 1 << 20);
Result<std::string> read_all(int fd, std::size_t limit = 1 << 20);

// One write(2) of the whole text, as the files of /proc and of cgroups want it.
Status write_value_at(int dir, const std::string& path, std::string_view value);

// Writes all of it, going on after short writes and interrupts.
Status write_all(int fd, std::string_view data);

// Writes `data` to a temporary name beside `path`, syncs it and renames it over `path`.
Status replace_file_at(int dir, const std::string& path, std::string_view data, unsigned mode);

// Creates `path` and its missing parents with `mode`; an existing directory is fine.
Status make_directories(const std::string& path, unsigned mode);

// The names in a directory, in order, without '.' and '..'. `fd` keeps its own position.
Result<std::vector<std::string>> list_directory(int fd);

// Removes the tree below `name` in `dir`, and `name` itself, by descriptor: links are removed and
// never followed, and nothing on another file system is touched. A missing name is fine.
Status remove_tree_at(int dir, const std::string& name);

}  // namespace carrel
