#include "storage/workspaces/tree_watch.h"

#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include <functional>
#include <random>
#include <utility>

#include "storage/workspaces/restore.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

// They keep a watch, and say that none of them has a file open.
class WatchedWriters : public CountedWriters {
 public:
  [[nodiscard]] bool keep_watches() const override { return true; }
  std::optional<KeptWatch> take_watch() override {
    EXPECT_EQ(frozen, 1) << "they stand still when it is asked for";
    return std::exchange(kept, std::nullopt);
  }
  void keep_watch(KeptWatch watch) override { kept = std::move(watch); }
  std::optional<KeptWatch> kept;
};

class TreeWatchTest : public WorkspacesTest {
 protected:
  void SetUp() override {
    const UniqueFd top(::open(tree().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!TreeWatch::begin(top.get()).has_value()) {
      GTEST_SKIP() << "not on a file system that tells everything";
    }
    for (const char* directory : {"a", "b", "b/deep", "c"}) {
      for (int i = 0; i < 4; ++i) {
        write(std::string(directory) + "/f" + std::to_string(i), "as it was");
      }
    }
    take();
    ::usleep(30'000);  // from then on times are trusted, too
    take();
  }

  SnapshotRow take(Unchanged unchanged = Unchanged::kTakenAgain) {
    auto taken =
        take_snapshot(*store_, store_->find("w").value(), {.unchanged = unchanged}, writers_);
    EXPECT_TRUE(taken.ok()) << (taken.ok() ? "" : taken.error().to_string());
    EXPECT_EQ(writers_.frozen, 0);
    return taken.ok() ? taken.value() : SnapshotRow{};
  }
  [[nodiscard]] std::string at(const std::string& path) const { return tree() + "/" + path; }
  // A file that is written to in a way that nobody is told of until this ends.
  class Mapping {
   public:
    explicit Mapping(const std::string& path)
        : file_(::open(path.c_str(), O_RDWR | O_CLOEXEC)),
          bytes_(static_cast<char*>(
              ::mmap(nullptr, 9, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0))) {}
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping() { ::munmap(bytes_, 9); }
    void put(char what) { bytes_[0] = what; }

   private:
    UniqueFd file_;
    char* bytes_;
  };

  WatchedWriters writers_;
};

TEST_F(TreeWatchTest, WhatIsSilentIsNotLookedAt) {
  ASSERT_TRUE(writers_.kept.has_value());
  Mapping mapping(at("a/f1"));
  mapping.put('A');
  EXPECT_EQ(take().changed, 0U) << "nobody told, and the writers say that there is nobody";
  write("c/f0", "something");
  mapping.put('B');
  EXPECT_EQ(changed_in(take()), std::vector<std::string>{"f c/f0"});
  write("a/f2", "something");
  EXPECT_EQ(changed_in(take()), (std::vector<std::string>{"f a/f1", "f a/f2"}))
      << "a directory of which something is told is looked at whole";
}

TEST_F(TreeWatchTest, TheLastOneNeedsNoWalk) {
  const std::string last = take().id;
  ::unlink((root_ + "/workspaces/w/index").c_str());
  EXPECT_EQ(take(Unchanged::kLastOne).id, last) << "not even the index is read";
  ASSERT_TRUE(writers_.kept.has_value());
  EXPECT_EQ(writers_.kept->snapshot, last);
  write("b/deep/f3", "something");
  EXPECT_NE(take(Unchanged::kLastOne).id, last);
}

TEST_F(TreeWatchTest, AnIndexOfAnotherWalkIsNotTrusted) {
  Mapping mapping(at("a/f1"));
  mapping.put('A');
  writers_.kept->index_ns += 1;
  EXPECT_EQ(changed_in(take()), std::vector<std::string>{"f a/f1"});
}

TEST_F(TreeWatchTest, EveryChangeIsSeen) {
  const auto hidden = [this](const std::string& path) {
    struct stat before{};
    ASSERT_EQ(::stat(at(path).c_str(), &before), 0);
    std::ofstream(at(path)) << "as it is!";
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, at(path).c_str(), times, 0), 0);
  };
  const auto append = [this](const std::string& path) {
    std::ofstream(at(path), std::ios::app) << "more";
  };
  UniqueFd open_before(::open(at("c/f3").c_str(), O_WRONLY | O_CLOEXEC));
  const std::vector<std::pair<const char*, std::function<void()>>> changes = {
      {"written", [&] { write("a/f0", "new"); }},
      {"written, with its old size and time", [&] { hidden("b/f0"); }},
      {"written by whoever had it open", [&] { ASSERT_EQ(::write(open_before.get(), "x", 1), 1); }},
      {"by a mapping that ended", [&] { Mapping(at("b/deep/f0")).put('M'); }},
      {"cut", [&] { ASSERT_EQ(::truncate(at("a/f1").c_str(), 2), 0); }},
      {"made", [&] { write("a/new", "new"); }},
      {"renamed", [&] { fs::rename(at("a/new"), at("a/newer")); }},
      {"renamed to elsewhere", [&] { fs::rename(at("a/newer"), at("b/newer")); }},
      {"removed", [&] { fs::remove(at("b/newer")); }},
      {"replaced",
       [&] {
         write("a/draft", "a new one");
         fs::rename(at("a/draft"), at("a/f2"));
       }},
      {"replaced from elsewhere",
       [&] {
         write("c/draft", "another");
         fs::rename(at("c/draft"), at("a/f2"));
       }},
      {"its rights", [&] { fs::permissions(at("a/f0"), fs::perms::owner_read); }},
      {"an attribute", [&] { ASSERT_EQ(::setxattr(at("c/f0").c_str(), "user.a", "1", 1, 0), 0); }},
      {"a directory's rights", [&] { fs::permissions(at("b/deep"), fs::perms::owner_all); }},
      {"a directory", [&] { fs::create_directories(at("c/d/e")); }},
      {"in a new directory", [&] { write("c/d/e/f", "new"); }},
      {"a link", [&] { fs::create_symlink("nowhere", at("c/link")); }},
      {"made and removed",
       [&] {
         write("c/short", "");
         fs::remove(at("c/short"));
         append("c/f1");
       }},
      {"through a further name that is gone again",
       [&] {
         fs::create_hard_link(at("a/f3"), at("b/alias"));
         append("b/alias");
         fs::remove(at("b/alias"));
       }},
      {"through one that was replaced",
       [&] {
         fs::create_hard_link(at("a/f3"), at("b/alias"));
         append("b/alias");
         write("b/other", "");
         fs::rename(at("b/other"), at("b/alias"));
       }},
      {"through one that was moved, and removed there",
       [&] {
         fs::create_hard_link(at("a/f3"), at("b/alias2"));
         append("b/alias2");
         fs::rename(at("b/alias2"), at("c/f2"));
         fs::remove(at("c/f2"));
       }},
      {"through one that was exchanged, and removed",
       [&] {
         fs::create_hard_link(at("a/f3"), at("b/alias3"));
         ASSERT_EQ(::renameat2(AT_FDCWD, at("b/alias3").c_str(), AT_FDCWD, at("c/f1").c_str(),
                               RENAME_EXCHANGE),
                   0);
         append("c/f1");
         fs::remove(at("c/f1"));
       }},
      {"through one in a directory that is gone",
       [&] {
         fs::create_directory(at("b/short"));
         fs::create_hard_link(at("a/f3"), at("b/short/alias"));
         append("b/short/alias");
         fs::remove_all(at("b/short"));
       }},
      {"a directory is elsewhere", [&] { fs::rename(at("c/d"), at("b/d")); }},
      {"and written to there", [&] { write("b/d/e/f", "newer"); }},
      {"a directory is gone", [&] { fs::remove_all(at("b/d")); }},
      {"a further name that stays",
       [&] {
         fs::create_hard_link(at("a/f3"), at("b/stays"));
         append("b/stays");
       }},
      {"written through it", [&] { append("b/stays"); }},
  };
  for (const auto& [what, change] : changes) {
    change();
    EXPECT_EQ(look(take()), look(tree())) << what;
    ::usleep(25'000);
    EXPECT_EQ(take().changed, 0U) << "after: " << what;
  }
}

TEST_F(TreeWatchTest, MoreThanTheKernelKeepsIsSeen) {
  for (int i = 0; i < 10'000; ++i) {
    write("a/f" + std::to_string(i % 4), "again");
    write("c/f" + std::to_string(i % 4), "again");
  }
  write("b/deep/f1", "at last");
  EXPECT_EQ(look(take()), look(tree()));
}

TEST_F(TreeWatchTest, FilesWithSeveralNamesAreNoEvidence) {
  fs::create_hard_link(at("a/f0"), at("c/further"));
  take();
  EXPECT_FALSE(writers_.kept.has_value());
  fs::remove(at("c/further"));
  take();
  EXPECT_TRUE(writers_.kept.has_value());
}

TEST_F(TreeWatchTest, ARestoreIsSeen) {
  const SnapshotRow first = take();
  write("a/f0", "later");
  write("b/new", "later");
  take();
  ASSERT_TRUE(restore_snapshot(*store_, store_->find("w").value(), first, writers_).ok());
  ASSERT_TRUE(writers_.kept.has_value()) << "and what happens after it is told";
  EXPECT_EQ(writers_.kept->snapshot, first.id);
  EXPECT_EQ(take(Unchanged::kLastOne).id, first.id);
  EXPECT_EQ(look(take()), look(first));
}

// What happens is chosen by chance, and what a snapshot says has to be what is there.
TEST_F(TreeWatchTest, WhateverHappensIsSeen) {
  std::mt19937 random(4711);
  const auto one_of = [&](const std::vector<std::string>& all) {
    return all[random() % all.size()];
  };
  const std::vector<std::string> directories = {"a", "b", "b/deep", "c"};
  const auto name = [&] { return one_of(directories) + "/f" + std::to_string(random() % 6); };
  std::error_code ignored;
  int kept = 0;
  for (int round = 0; round < 200; ++round) {
    for (unsigned i = random() % 4; i > 0; --i) {
      switch (random() % 12) {
        case 0:
          fs::rename(at(name()), at(name()), ignored);
          break;
        case 1:
          fs::remove(at(name()), ignored);
          break;
        case 2:
          fs::create_hard_link(at(name()), at(name()), ignored);
          break;
        case 3: {
          const std::string draft = one_of(directories) + "/draft";
          write(draft, std::to_string(random()));
          fs::rename(at(draft), at(name()), ignored);
          break;
        }
        default:
          write(name(), std::to_string(random()));
      }
    }
    const SnapshotRow row = take(random() % 2 == 0 ? Unchanged::kLastOne : Unchanged::kTakenAgain);
    ASSERT_EQ(look(row), look(tree())) << "round " << round;
    kept += writers_.kept.has_value() ? 1 : 0;
    // Now and then without the further names, which are no evidence.
    if (round % 10 == 0) {
      for (const std::string& directory : directories) {
        for (int i = 0; i < 6; ++i) {
          fs::remove(at(directory + "/f" + std::to_string(i)), ignored);
          write(directory + "/f" + std::to_string(i), "afresh");
        }
      }
    }
  }
  EXPECT_GT(kept, 20) << "or nothing of this was tried";
}

}  // namespace
}  // namespace carrel::storage
