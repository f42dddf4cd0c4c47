#include "storage/workspaces/changes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace carrel::storage {
namespace {

TreeEntry entry(EntryKind kind, const std::string& path, const std::string& target = {}) {
  TreeEntry made;
  made.kind = kind;
  made.path = path;
  made.target = target;
  made.mode = kind == EntryKind::kLink ? 0777 : kind == EntryKind::kGone ? 0 : 0640;
  made.mtime_ns = kind == EntryKind::kGone ? 0 : 1'700'000'000'123'456'789;
  if (kind == EntryKind::kFile) {
    made.size = 17;
    made.hash.fill(0xa5);
  }
  return made;
}

void expect_same(const TreeEntry& a, const TreeEntry& b) {
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.mode, b.mode);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.mtime_ns, b.mtime_ns);
  EXPECT_EQ(a.hash, b.hash);
  EXPECT_EQ(a.target, b.target);
  EXPECT_EQ(a.opaque, b.opaque);
}

TEST(Changes, AnyNameComesBack) {
  std::vector<TreeEntry> changes = {
      entry(EntryKind::kFile, "a b"),         entry(EntryKind::kFile, "new\nline"),
      entry(EntryKind::kFile, "100%"),        entry(EntryKind::kFile, "\xff\xfe"),
      entry(EntryKind::kDirectory, "d"),      entry(EntryKind::kFile, "d/-rf"),
      entry(EntryKind::kLink, "l", " \n%41"), entry(EntryKind::kPipe, "p"),
      entry(EntryKind::kGone, "old"),         entry(EntryKind::kFile, "two", "a b"),
  };
  changes[4].opaque = true;
  std::sort(changes.begin(), changes.end(),
            [](const TreeEntry& a, const TreeEntry& b) { return comes_before(a.path, b.path); });
  auto read = changes_from_text(changes_to_text(changes));
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  ASSERT_EQ(read->size(), changes.size());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    expect_same(read.value()[i], changes[i]);
  }
}

TEST(Changes, DamagedTextIsRefused) {
  const std::string good = changes_to_text({entry(EntryKind::kFile, "a")});
  ASSERT_TRUE(changes_from_text(good).ok());
  const std::string header = "carrel-changes 1\n";
  for (const std::string& bad :
       {std::string(), std::string("carrel-changes 2\n"), good.substr(0, good.size() - 1),
        header + "- ../a\n", header + "- /a\n", header + "- a/./b\n", header + "- a//b\n",
        header + "- a%0\n", header + "- a%zz\n", header + "- a%00\n", header + "- b\n- a\n",
        header + "- a\n- a\n", header + "x a\n", header + "d 7777 0 a\n", header + "d 755 x a\n",
        header + "d 755 0  a\n", header + "f 644 1 0 abc a\n", header + "- \n", header + "\n"}) {
    EXPECT_FALSE(changes_from_text(bad).ok()) << bad;
  }
}

TEST(Changes, DirectoriesComeBeforeWhatIsInThem) {
  EXPECT_TRUE(comes_before("a", "a/b"));
  EXPECT_TRUE(comes_before("a/b", "a.b"));
  EXPECT_TRUE(comes_before("a/z", "a!"));
  EXPECT_TRUE(comes_before("a", "b"));
  EXPECT_FALSE(comes_before("a", "a"));
  EXPECT_TRUE(lies_in("a/b", "a"));
  EXPECT_FALSE(lies_in("ab", "a"));
}

TEST(Changes, LaterLayersHideEarlierOnes) {
  Tree tree;
  apply_changes(tree,
                {entry(EntryKind::kDirectory, "d"), entry(EntryKind::kFile, "d/x"),
                 entry(EntryKind::kDirectory, "d/y"), entry(EntryKind::kFile, "d/y/z"),
                 entry(EntryKind::kFile, "dd"), entry(EntryKind::kFile, "f")},
                "one");
  apply_changes(tree, {entry(EntryKind::kGone, "d/y"), entry(EntryKind::kFile, "f")}, "two");
  EXPECT_EQ(tree.size(), 4U);
  EXPECT_EQ(tree.at("f").layer, "two");
  EXPECT_EQ(tree.at("d/x").layer, "one");
  TreeEntry opaque = entry(EntryKind::kDirectory, "d");
  opaque.opaque = true;
  apply_changes(tree, {opaque}, "three");
  EXPECT_FALSE(tree.contains("d/x"));
  EXPECT_TRUE(tree.contains("dd"));
  apply_changes(tree, {entry(EntryKind::kFile, "d")}, "four");
  EXPECT_EQ(tree.at("d").entry.kind, EntryKind::kFile);
}

}  // namespace
}  // namespace carrel::storage
