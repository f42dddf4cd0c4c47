#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel {

// What a tree may grow to. Sizes are those that files claim to have, so that a hole costs as much
// as bytes do.
struct TreeLimits {
  std::uint64_t bytes = 32ULL << 30;
  std::uint64_t entries = 2'000'000;
};
inline constexpr std::size_t kDeepestPath = 128;   // directories below each other
inline constexpr std::size_t kLongestPath = 4095;  // bytes

// A path from an archive, from the root of its tree and as short as it goes: "/a/./b/" is "a/b",
// the root itself is "". A path with "..", too deep or too long is an error that names it.
Result<std::string> normal_path(std::string_view path);

// Writes files, directories and links below one directory, and nowhere else: every component of a
// path is opened by descriptor from the one before and no link is followed, whoever put it there.
// Paths are as normal_path() gives them. Missing directories are made. Needs an umask of 022.
class TreeWriter {
 public:
  // What becomes of something that is in the way of a new entry: it is replaced, whatever it is; or
  // only where a file or link takes the place of a file or link, and is an error otherwise.
  enum class InTheWay { kReplaced, kOnlyFiles };

  // `root` is borrowed.
  TreeWriter(int root, TreeLimits limits, InTheWay in_the_way = InTheWay::kReplaced)
      : root_(root), limits_(limits), in_the_way_(in_the_way) {}

  Status directory(const std::string& path);
  // A new empty file of that mode; `size` is what it will have.
  Result<UniqueFd> file(const std::string& path, unsigned mode, std::uint64_t size);
  Status symbolic_link(const std::string& path, const std::string& target);
  // The mode and time that a directory is to keep, when nothing more comes into it.
  Status finish_directory(const std::string& path, unsigned mode, std::uint64_t modified_ns);
  // `target` is a path of a file that this tree already has.
  Status hard_link(const std::string& path, const std::string& target);

  // Whatever is there, with all that is below it; a missing one is fine.
  Status remove(const std::string& path);
  // Everything below a directory; a missing one is fine.
  Status clear(const std::string& path);

  // Counts an entry that leaves nothing in the tree.
  Status count_entry(const std::string& path);

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t entries() const { return entries_; }

 private:
  enum class Missing { kMake, kLeave };
  struct Open {
    std::string name;
    UniqueFd directory;
  };

  Result<int> open_directory(std::string_view path, Missing missing);
  // Makes way for a file or a link.
  Status make_way(const std::string& path);
  Result<int> enter(int parent, const std::string& name, std::string_view path, Missing missing);

  int root_;
  TreeLimits limits_;
  InTheWay in_the_way_;
  std::uint64_t bytes_ = 0;
  std::uint64_t entries_ = 0;
  std::vector<Open> open_;  // the directories on the way to the last entry
};

// Opens a file below `root` in the same way, for reading; it has to be a regular one.
Result<UniqueFd> open_file_below(int root, const std::string& path);

}  // namespace carrel
