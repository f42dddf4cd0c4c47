#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "storage/workspaces/layer_files.h"
#include "storage/workspaces/tree_entry.h"

namespace carrel::storage {

// Copies entries of trees into another, which is to become a layer: an overlay can have it as a
// lower directory. Neither side's links are followed. Entries come in the order of comes_before().
class LayerWriter {
 public:
  // The tree that a path is taken from.
  using Source = std::function<int(const std::string& path)>;
  // All directories are borrowed.
  LayerWriter(Source from, int to) : from_(std::move(from)), to_(to), files_(to) {}
  LayerWriter(int from, int to) : LayerWriter([from](const std::string&) { return from; }, to) {}

  // What is added from now on takes no more of the disk than that in all, or is kResource.
  void set_most(std::uint64_t bytes) { most_ = bytes; }

  // Copies it, and sets the size, the times and the hash of a file to what was copied. One more
  // name of a file that this layer has becomes a link to it, and its hash is left as it is.
  Status add(ScannedEntry& entry);
  // The same for an entry of a tree that nobody writes to any more: unless it is a directory it
  // gets one more name instead of being copied.
  Status add_sealed(ScannedEntry& entry);
  // Gives the directories their modes and times. What it returns is not on disk yet.
  Result<LayerFiles> finish();

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
  Status count(const struct stat& info);
  Status count_at(int parent, const std::string& name);
  Status file(int parent, const std::string& name, ScannedEntry& entry);
  Status other(int parent, const std::string& name, const ScannedEntry& entry);

  Source from_;
  int to_;
  std::vector<Directory> open_;  // the directories on the way to the last entry
  LayerFiles files_;
  std::uint64_t bytes_ = 0;
  std::uint64_t most_ = UINT64_MAX;
};

// What is said of a layer that would take more than there is for it.
Error no_room_for_layer();

// The hash of a file below `root`. What was written to it through a mapping is written back first:
// the next write then changes the file's times again.
Result<ContentHash> hash_synced(int root, const std::string& path);

// The attributes of a file or directory below `root`.
Result<std::string> attributes_below(int root, const std::string& path);

// Copies a file's contents, with its holes, or shares them, and returns their hash.
enum class Copied { kShared, kWritten };
struct HashedCopy {
  ContentHash hash;
  Copied copied;
};
Result<HashedCopy> copy_hashed(int from, int to, const std::string& path);

Status set_times(int fd, std::int64_t mtime_ns, const std::string& path);
// Of a name in a directory, which may be a link.
Status set_times_at(int dir, const char* name, std::int64_t mtime_ns, const std::string& path);

// Splits off the last component.
std::pair<std::string, std::string> split_path(const std::string& path);

}  // namespace carrel::storage
