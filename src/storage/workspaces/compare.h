#pragma once

#include <optional>
#include <string>
#include <vector>

#include "storage/workspaces/changes.h"

namespace carrel::storage {

enum class Change { kAdded, kModified, kDeleted, kRenamed };

// How one path differs between two trees. Modes, kinds and targets are in the nodes.
struct Difference {
  Change change = Change::kModified;
  std::string path;
  std::string from;                // kRenamed: the path before
  std::optional<TreeNode> before;  // absent: added
  std::optional<TreeNode> after;   // absent: deleted
};

// What leads from one tree to the other, by path. Times alone are no difference. A file that is
// gone and one that is new with the same contents are one that was renamed.
std::vector<Difference> compare_trees(const Tree& before, const Tree& after);

}  // namespace carrel::storage
