#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/inode_tables.h"
#include "storage/workspaces/tree_entry.h"
#include "storage/workspaces/tree_index.h"
#include "storage/workspaces/tree_watch.h"

namespace carrel::storage {

// Upper: the tree is the upper directory of an overlay, in which 0:0 devices and an attribute say
// what is hidden of the layers below.
enum class TreeForm { kPlain, kUpper };

// One part of a walk: the records first to last (not included) of the index are as they were, or,
// if there are none between those, the next of the entries that the walk describes.
struct ScanPart {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  [[nodiscard]] bool is_entry() const { return first == last; }
};

// A walk through a tree that a workload made. No link is followed and no other file system entered.
struct TreeScan {
  ScannedEntry top;
  std::vector<ScanPart> parts;        // in the order of comes_before(), without the top
  std::vector<ScannedEntry> entries;  // those that are not certain to be as they were; no hashes
  std::int64_t began_ns = 0;          // wall clock
  std::uint64_t bytes = 0;            // in files
  std::uint64_t left_out = 0;         // sockets and devices

  // What the tree is now. `index` is the one that it was compared with.
  [[nodiscard]] TreeIndex make_index(const TreeIndex& index) const;
};

inline constexpr std::uint64_t kMaxTreeEntries = 4'000'000;
inline constexpr std::uint64_t kMaxTreeBytes = 256ULL << 30;
inline constexpr std::size_t kMaxTreeDepth = 512;
inline constexpr std::size_t kMaxTreePath = 4000;

// Where a restore puts what it is about to move into place, in a tree that has nothing beside it.
// No part of the tree.
inline constexpr char kStageInTree[] = ".carrel-restore";

struct ScanOptions {
  std::set<std::string> without = {};  // paths that are left out, with everything below them
  // What the tree was in another walk. A directory that is certain to have the names that it had is
  // not listed again.
  const TreeIndex* index = nullptr;
  // Whether files that are not certain to be as they were are sent to the disk as soon as they are
  // met: whoever copies them then waits less.
  bool write_back = false;
  // Where the inodes of the tree can be read together, if they can.
  const InodeTables* tables = nullptr;
  // What was told of the tree since the index was made, and to be told from now on. If it is not
  // good afterwards and knew something, the walk has to be done again without it.
  TreeWatch* watch = nullptr;
};
// Walks with as many threads as there are processors; all of them have ended when it returns.
Result<TreeScan> scan_tree(int root, TreeForm form, const ScanOptions& options = {});

// The state of one directory or file that is open, in the same terms; its path is left empty.
ScannedEntry describe(const struct stat& info);

}  // namespace carrel::storage
