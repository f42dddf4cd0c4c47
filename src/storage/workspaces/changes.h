#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/tree_entry.h"

namespace carrel::storage {

// What one layer adds, changes and takes away, as text: one line for each entry, in order.
//
//   carrel-changes 1
//   f MODE SIZE MTIME SHA256 PATH          a file
//   h MODE SIZE MTIME SHA256 FIRST PATH    one more name of the file FIRST
//   d MODE MTIME PATH                      a directory; D: one that hides what was below it before
//   l MTIME TARGET PATH                    a symbolic link
//   p MODE MTIME PATH                      a named pipe
//   - PATH                                 what was there is gone, with everything below it
//   a ATTRIBUTES                           of the file or directory in the line before:
//   attributes.h
//
// In paths and targets a space, a control byte, a byte above 126 and % are %XX.
std::string changes_to_text(const std::vector<TreeEntry>& changes);
Result<std::vector<TreeEntry>> changes_from_text(std::string_view text);

// A whole tree: for each path what it is, and in which layer its contents are.
struct TreeNode {
  TreeEntry entry;
  std::string layer;
};
struct PathOrder {
  using is_transparent = void;  // NOLINT: the standard's name
  bool operator()(std::string_view a, std::string_view b) const { return comes_before(a, b); }
};
using Tree = std::map<std::string, TreeNode, PathOrder>;

// Lays the changes of a layer over the tree.
void apply_changes(Tree& tree, const std::vector<TreeEntry>& changes, const std::string& layer);

// Lays the changes of a layer over those of layers below it, so that together they change any tree
// as one after the other would.
void merge_changes(Tree& changes, const std::vector<TreeEntry>& later, const std::string& layer);

// Whether two entries are the same to whoever reads the tree; times do not count.
bool same_contents(const TreeEntry& a, const TreeEntry& b);

std::string hash_to_hex(const ContentHash& hash);

}  // namespace carrel::storage
