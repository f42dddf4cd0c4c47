#pragma once

#include <dirent.h>

#include <cstddef>
#include <memory>
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

// Whether what was written is there after the machine lost its power.
enum class Lasting { kSynced, kUnsynced };

// Writes `data` to a temporary name beside `path`, syncs it if it is to last, and renames it over
// `path`.
Status replace_file_at(int dir, const std::string& path, std::string_view data, unsigned mode,
                       Lasting lasting = Lasting::kSynced);

// Creates `path` and its missing parents with `mode`; an existing directory is fine.
Status make_directories(const std::string& path, unsigned mode);

// The entries of a directory, without "." and "..", in the order of the file system. One buffer
// serves the whole walk, and an entry may be removed while it is looked at.
class DirectoryEntries {
 public:
  // A link at the end of `path` is not followed. "." lists `dir` itself, from its beginning.
  static Result<DirectoryEntries> open_at(int dir, const std::string& path);

  // Valid until the next call. Null at the end, and after an error that failure() then tells.
  const dirent* next();
  [[nodiscard]] Status failure() const;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  struct Close {
    void operator()(DIR* stream) const { ::closedir(stream); }
  };
  DirectoryEntries(DIR* stream, int descriptor, std::string path)
      : stream_(stream), descriptor_(descriptor), path_(std::move(path)) {}

  std::unique_ptr<DIR, Close> stream_;
  int descriptor_;  // of the stream
  std::string path_;
  int error_number_ = 0;
};

// Calls `visit` with each entry (a dirent) whose name does not begin with a dot.
template <typename Visit>
Status each_visible_entry_at(int dir, const std::string& path, Visit visit) {
  CARREL_ASSIGN(DirectoryEntries entries, DirectoryEntries::open_at(dir, path));
  while (const dirent* entry = entries.next()) {
    if (entry->d_name[0] != '.') {
      visit(*entry);
    }
  }
  return entries.failure();
}

// The names in a directory, in order, without '.' and '..'. `fd` keeps its own position.
Result<std::vector<std::string>> list_directory(int fd);

// Removes the tree below `name` in `dir`, and `name` itself, by descriptor: links are removed and
// never followed, and nothing on another file system is touched. A missing name is fine, and so is
// any depth.
Status remove_tree_at(int dir, const std::string& name);

}  // namespace carrel
