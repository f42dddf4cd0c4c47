#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/tree_entry.h"

namespace carrel::storage {

// A walk through a tree that a workload made. No link is followed and no other file system entered.
struct TreeScan {
  std::vector<ScannedEntry> entries;  // in the order of comes_before(), without the top; no hashes
  std::int64_t began_ns = 0;          // wall clock
  std::uint64_t bytes = 0;            // in files
  std::uint64_t left_out = 0;         // sockets and devices
};

// Upper: the tree is the upper directory of an overlay, in which 0:0 devices and an attribute say
// what is hidden of the layers below.
enum class TreeForm { kPlain, kUpper };

inline constexpr std::uint64_t kMaxTreeEntries = 4'000'000;
inline constexpr std::uint64_t kMaxTreeBytes = 256ULL << 30;
inline constexpr std::size_t kMaxTreeDepth = 512;
inline constexpr std::size_t kMaxTreePath = 4000;

// Where a restore puts what it is about to move into place, in a tree that has nothing beside it. No
// part of the tree.
inline constexpr char kStageInTree[] = ".carrel-restore";

struct ScanOptions {
  std::set<std::string> without = {};  // paths that are left out, with everything below them
  std::size_t expected = 0;            // about how many entries there are; a guess costs time only
};
Result<TreeScan> scan_tree(int root, TreeForm form, const ScanOptions& options = {});

// The state of one directory or file that is open, in the same terms; its path is left empty.
ScannedEntry describe(const struct stat& info);

}  // namespace carrel::storage
