#include "journal/tree_identity.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace carrel::journal {
namespace {

using storage::EntryKind;
using storage::Tree;
using storage::TreeEntry;

Tree tree_with(const std::vector<TreeEntry>& entries) {
  Tree tree;
  storage::apply_changes(tree, entries, "layer");
  return tree;
}
TreeEntry file(const std::string& path, unsigned char content) {
  TreeEntry entry;
  entry.path = path;
  entry.mode = 0644;
  entry.hash.fill(content);
  return entry;
}

TEST(TreeIdentity, IsWhatIsThereAndNotWhen) {
  TreeEntry later = file("a", 1);
  later.mtime_ns = 7;
  EXPECT_EQ(identity_of(tree_with({file("a", 1)})), identity_of(tree_with({later})));
  TreeEntry other_mode = file("a", 1);
  other_mode.mode = 0600;
  TreeEntry link = file("a", 0);
  link.kind = EntryKind::kLink;
  link.target = "b";
  TreeEntry other_link = link;
  other_link.target = "c";
  std::vector<std::string> seen = {identity_of({})};
  for (const TreeEntry& one :
       {file("a", 1), file("a", 2), file("b", 1), other_mode, link, other_link}) {
    seen.push_back(identity_of(tree_with({one})));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end()) << "each is another";
}

TEST(TreeIdentity, OurOwnOutputDoesNotCount) {
  TreeEntry folder;
  folder.path = ".exec";
  folder.kind = EntryKind::kDirectory;
  const Tree with = tree_with({folder, file(".exec/1", 1), file("a", 1)});
  EXPECT_EQ(identity_of(with), identity_of(tree_with({file("a", 1)})));
  EXPECT_NE(identity_of(tree_with({file(".execute", 1)})), identity_of({}));
}

}  // namespace
}  // namespace carrel::journal
