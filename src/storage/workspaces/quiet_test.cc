#include "storage/workspaces/quiet.h"

#include <sys/mman.h>
#include <sys/xattr.h>

#include <functional>
#include <utility>

#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/workspaces_test_support.h"

namespace carrel::storage {
namespace {

namespace fs = std::filesystem;

// A workspace with a file system of its own, which only root has.
class QuietTest : public WorkspacesTest {
 protected:
  void SetUp() override {
    row_.name = "own";
    row_.disk_bytes = 20U << 20;
    row_ = store_->ensure(row_).value();
    place_ = std::move(store_->open_place("own").value());
    if (!has_disk(place_.get())) {
      GTEST_SKIP() << "no file system of its own here";
    }
    tree_ = std::move(store_->open_tree(row_).value());
    top_ = "/proc/self/fd/" + std::to_string(tree_.get());
    std::ofstream(top_ + "/file") << "as it was";
    std::ofstream(top_ + "/other") << "as it was";
    fs::create_directory(top_ + "/empty");
  }

  // As after a walk that found nothing new.
  void note(const std::string& snapshot) {
    ASSERT_EQ(::syncfs(tree_.get()), 0);
    const Quiet quiet(place_.get(), tree_.get());
    ASSERT_TRUE(quiet.still());
    quiet.note(snapshot);
  }
  [[nodiscard]] bool was(const std::string& snapshot) const {
    return Quiet(place_.get(), tree_.get()).was(snapshot);
  }
  Result<SnapshotRow> last_or_new() {
    row_ = store_->find("own").value();
    return take_snapshot(*store_, row_, {.unchanged = Unchanged::kLastOne}, writers_);
  }

  WorkspaceRow row_;
  UniqueFd place_;
  UniqueFd tree_;
  std::string top_;
};

TEST_F(QuietTest, NothingIsKnownUntilItIsNoted) {
  EXPECT_FALSE(was("a"));
  note("a");
  EXPECT_TRUE(was("a"));
  EXPECT_TRUE(was("a")) << "asking changes nothing";
  EXPECT_FALSE(was("b"));
  EXPECT_FALSE(was(""));
}

void write_through_a_mapping(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* at = ::mmap(nullptr, 9, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  static_cast<char*>(at)[0] = 'A';
  ::munmap(at, 9);
}

void write_and_hide_it(const std::string& path) {
  struct stat before{};
  ASSERT_EQ(::stat(path.c_str(), &before), 0);
  std::ofstream(path) << "as it is!";
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// None of them is on the device when it is asked for.
TEST_F(QuietTest, EveryChangeIsSeen) {
  const std::vector<std::pair<const char*, std::function<void()>>> changes = {
      {"written", [&] { std::ofstream(top_ + "/file") << "new"; }},
      {"written, with its old size and time", [&] { write_and_hide_it(top_ + "/other"); }},
      {"written through a mapping", [&] { write_through_a_mapping(top_ + "/other"); }},
      {"made", [&] { std::ofstream(top_ + "/new") << ""; }},
      {"renamed", [&] { fs::rename(top_ + "/new", top_ + "/newer"); }},
      {"removed", [&] { fs::remove(top_ + "/newer"); }},
      {"its rights", [&] { fs::permissions(top_ + "/file", fs::perms::owner_read); }},
      {"an attribute",
       [&] { ASSERT_EQ(::setxattr((top_ + "/file").c_str(), "user.a", "1", 1, 0), 0); }},
      {"a directory", [&] { fs::create_directory(top_ + "/empty/d"); }},
  };
  for (const auto& [what, change] : changes) {
    note("a");
    ASSERT_TRUE(was("a")) << what;
    change();
    EXPECT_FALSE(was("a")) << what;
  }
}

TEST_F(QuietTest, AnotherLifeOfTheDeviceIsAnotherOne) {
  note("a");
  ASSERT_TRUE(was("a"));
  tree_.reset();
  store_.emplace(std::move(WorkspaceStore::open(*home_).value()));
  tree_ = std::move(store_->open_tree(row_).value());
  EXPECT_FALSE(was("a"));
}

TEST_F(QuietTest, ANoteThatIsNoneCostsOnlyTime) {
  note("a");
  ASSERT_EQ(::ftruncate(UniqueFd(::openat(place_.get(), "quiet", O_WRONLY | O_CLOEXEC)).get(), 5),
            0);
  EXPECT_FALSE(was("a"));
  ASSERT_EQ(::unlinkat(place_.get(), "quiet", 0), 0);
  EXPECT_FALSE(was("a"));
  EXPECT_FALSE(Quiet(UniqueFd(::open("/tmp", O_RDONLY | O_CLOEXEC)).get(), tree_.get()).still())
      << "a workspace without a file system of its own";
}

// The whole way: the tree is walked until that is known not to be needed, and what changes then is
// in the next one.
TEST_F(QuietTest, ASnapshotOfWhatIsAsItWasIsTheLastOne) {
  auto first = last_or_new();
  ASSERT_TRUE(first.ok());
  // What was written shortly before a walk is looked at once more.
  for (int i = 0; i < 500 && !was(first->id); ++i) {
    auto again = last_or_new();
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->id, first->id);
    ::usleep(10'000);
  }
  ASSERT_TRUE(was(first->id)) << "by now it is noted";
  EXPECT_EQ(last_or_new()->id, first->id);
  write_through_a_mapping(top_ + "/other");
  auto second = last_or_new();
  ASSERT_TRUE(second.ok());
  EXPECT_NE(second->id, first->id);
  EXPECT_EQ(changed_in(second.value()), std::vector<std::string>{"f other"});
  EXPECT_FALSE(was(first->id));
}

}  // namespace
}  // namespace carrel::storage
