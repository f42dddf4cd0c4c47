#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/tree_entry.h"

namespace carrel::storage {

// What the tree of a workspace was when its last snapshot was taken, with the evidence for it. A
// cache: one that is missing, damaged or of another snapshot only costs time.
struct TreeIndex {
  std::string snapshot;  // its id
  std::int64_t began_ns = 0;
  std::vector<ScannedEntry> entries;  // in the order of comes_before()
};

// Whether a file that was `before` in a walk that began at `began_ns` has the same contents `now`.
// Clocks of file systems are coarse: what changed shortly before that walk may have changed again
// after it without another time.
bool is_certain(const ScannedEntry& before, const ScannedEntry& now, std::int64_t began_ns);

// Whether a file or directory is certain to have the attributes that it had.
bool has_same_attributes(const ScannedEntry& before, const ScannedEntry& now,
                         std::int64_t began_ns);

std::string index_to_bytes(const TreeIndex& index);
// kInvalid when the bytes are no whole index.
Result<TreeIndex> index_from_bytes(std::string_view bytes);

// The index in the file `name` of a directory; empty when there is none that can be used.
TreeIndex read_index(int directory, const std::string& name, const std::string& snapshot);
// Not synced: see above.
Status write_index(int directory, const std::string& name, const TreeIndex& index);

}  // namespace carrel::storage
