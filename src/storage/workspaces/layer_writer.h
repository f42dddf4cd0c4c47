#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/workspaces/tree_entry.h"

namespace carrel::storage {

// Copies entries of one tree into another, which is to become a layer: an overlay can have it as a
// lower directory. Neither side's links are followed. Entries come in the order of comes_before().
class LayerWriter {
 public:
  // Both directories are borrowed.
  LayerWriter(int from, int to) : from_(from), to_(to) {}

  // Copies it, and sets the size, the times and the hash of a file to what was copied. One more
  // name of a file that this layer has becomes a link to it, and its hash is left as it is.
  Status add(ScannedEntry& entry);
  // Gives the directories their modes and times, and has everything on disk.
  Status finish();

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Directory {
    std::string path;
    UniqueFd copy;
    unsigned mode;
    std::int64_t mtime_ns;
  };
  Result<int> enter(std::string_view path);
  Status leave(std::size_t depth);
  Status file(int parent, const std::string& name, ScannedEntry& entry);
  Status other(int parent, const std::string& name, const ScannedEntry& entry);

  int from_;
  int to_;
  std::vector<Directory> open_;  // the directories on the way to the last entry
  std::vector<UniqueFd> unsynced_;
  std::uint64_t files_ = 0;
  std::uint64_t bytes_ = 0;
};

// Opens something below `root` without following any link.
Result<UniqueFd> open_below(int root, const std::string& path, int flags);

// The hash of a file below `root`. What was written to it through a mapping is written back first:
// the next write then changes the file's times again.
Result<ContentHash> hash_synced(int root, const std::string& path);

// The attributes of a file or directory below `root`.
Result<std::string> attributes_below(int root, const std::string& path);

// Copies a file's contents, with its holes, and returns their hash.
Result<ContentHash> copy_hashed(int from, int to, const std::string& path);

Status set_times(int fd, std::int64_t mtime_ns, const std::string& path);
// Of a name in a directory, which may be a link.
Status set_times_at(int dir, const char* name, std::int64_t mtime_ns, const std::string& path);

// Splits off the last component.
std::pair<std::string, std::string> split_path(const std::string& path);

}  // namespace carrel::storage
