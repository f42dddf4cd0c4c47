#include "storage/home.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"

namespace carrel::storage {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

// A fresh directory for each test; `path()` in it does not exist yet.
class HomeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "carrel-home-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override {
    ::unsetenv("CARREL_HOME");
    EXPECT_TRUE(remove_tree_at(AT_FDCWD, root_).ok());
  }

  [[nodiscard]] std::string path(const std::string& name = "home") const {
    return root_ + "/" + name;
  }
  Home open_home(const std::string& name = "home") const {
    auto home = Home::open_at(path(name));
    EXPECT_TRUE(home.ok()) << home.error().to_string();
    return std::move(home.value());
  }
  static mode_t mode_of(const std::string& file) {
    struct stat info{};
    EXPECT_EQ(::stat(file.c_str(), &info), 0) << file;
    return info.st_mode & 07777;
  }
  static std::vector<std::string> abandoned_ids(Home& home) {
    std::vector<std::string> ids;
    for (const Home::Abandoned& mark : home.abandoned()) {
      ids.push_back(mark.id);
    }
    return ids;
  }

  std::string root_;
};

TEST_F(HomeTest, IsMadeForItsUserAlone) {
  ::umask(0);
  const Home home = open_home("a/b/home");
  ::umask(022);
  EXPECT_EQ(home.path(), path("a/b/home"));
  for (const char* name : {"", "/run", "/run/once", "/run/box", "/run/ids"}) {
    EXPECT_EQ(mode_of(home.path() + name), 0700U) << name;
  }
  EXPECT_EQ(mode_of(home.path() + "/installation"), 0600U);
}

TEST_F(HomeTest, OneThatWasRemovedIsKnownFromOneThatWasMoved) {
  auto home = Home::open_at(root_ + "/home");
  ASSERT_TRUE(home.ok());
  EXPECT_FALSE(home->is_removed());
  std::filesystem::rename(root_ + "/home", root_ + "/moved");
  EXPECT_FALSE(home->is_removed());
  std::filesystem::remove_all(root_ + "/moved");
  EXPECT_TRUE(home->is_removed());
  // Another one in its place is not this one.
  ASSERT_TRUE(Home::open_at(root_ + "/home").ok());
  EXPECT_TRUE(home->is_removed());
}

TEST_F(HomeTest, LabelIsEightHexDigitsAndStays) {
  const std::string label = open_home().label();
  EXPECT_THAT(label, MatchesRegex("[0-9a-f]{8}"));
  EXPECT_EQ(open_home().label(), label);
}

TEST_F(HomeTest, TwoHomesHaveDifferentLabels) {
  EXPECT_NE(open_home("one").label(), open_home("two").label());
}

TEST_F(HomeTest, FirstOpensAtOnceAgreeOnOneLabel) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = "home" + std::to_string(round);
    std::array<std::string, 8> labels;
    std::atomic<int> waiting = 0;
    std::vector<std::thread> threads;
    threads.reserve(labels.size());
    for (std::string& label : labels) {
      threads.emplace_back([&] {
        ++waiting;
        while (waiting < static_cast<int>(labels.size())) {
        }
        auto home = Home::open_at(path(name));
        label = home.ok() ? home.value().label() : home.error().to_string();
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), 1U);
    EXPECT_EQ(labels[0], open_home(name).label());
  }
}

TEST_F(HomeTest, NothingIsLeftOfTheOpensThatLost) {
  open_home();
  UniqueFd directory(::open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(::unlinkat(directory.get(), "installation", 0), 0);
  open_home();
  EXPECT_EQ(::unlinkat(directory.get(), "installation", 0), 0);
  EXPECT_TRUE(remove_tree_at(directory.get(), "run").ok());
  EXPECT_EQ(::rmdir(path().c_str()), 0) << "something else is in it: " << std::strerror(errno);
}

TEST_F(HomeTest, DamagedLabelIsAConflict) {
  open_home();
  for (const char* text : {"", "0123456", "012345678", "0123456g", "../../..", "ABCDEF01"}) {
    ASSERT_TRUE(replace_file_at(AT_FDCWD, path() + "/installation", text, 0600).ok());
    const auto home = Home::open_at(path());
    ASSERT_FALSE(home.ok()) << text;
    EXPECT_EQ(home.error().code, Code::kConflict) << text;
    EXPECT_THAT(home.error().message, HasSubstr(path()));
  }
}

TEST_F(HomeTest, DirectoryOfAnotherUserIsRefused) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can give a directory away";
  }
  open_home();
  ASSERT_EQ(::chown(path().c_str(), 65534, 65534), 0);
  const auto home = Home::open_at(path());
  ASSERT_FALSE(home.ok());
  EXPECT_EQ(home.error().code, Code::kDenied);
  EXPECT_THAT(home.error().to_string(), HasSubstr(path()));
  EXPECT_THAT(home.error().to_string(), HasSubstr("CARREL_HOME"));
}

TEST_F(HomeTest, DirectoryThatOthersCanWriteToIsRefused) {
  open_home();
  for (const mode_t mode : {0720U, 0702U, 0777U, 01777U}) {
    ASSERT_EQ(::chmod(path().c_str(), mode), 0);
    const auto home = Home::open_at(path());
    ASSERT_FALSE(home.ok()) << mode;
    EXPECT_EQ(home.error().code, Code::kDenied) << mode;
  }
  ASSERT_EQ(::chmod(path().c_str(), 0755), 0);
  EXPECT_TRUE(Home::open_at(path()).ok());
}

TEST_F(HomeTest, LinkInThePlaceOfItsDirectoryIsNotFollowed) {
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  ASSERT_EQ(::mkdir(path("elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(::symlink(path("elsewhere").c_str(), (path() + "/run").c_str()), 0);
  EXPECT_FALSE(Home::open_at(path()).ok());
  EXPECT_NE(::access((path("elsewhere") + "/once").c_str(), F_OK), 0);
}

TEST_F(HomeTest, FileInItsPlaceIsAnError) {
  ASSERT_TRUE(replace_file_at(AT_FDCWD, path(), "", 0600).ok());
  EXPECT_FALSE(Home::open_at(path()).ok());
}

TEST_F(HomeTest, IsWhereTheEnvironmentSays) {
  ASSERT_EQ(::setenv("CARREL_HOME", path().c_str(), 1), 0);
  const auto home = Home::open();
  ASSERT_TRUE(home.ok());
  EXPECT_EQ(home.value().path(), path());
}

TEST_F(HomeTest, RelativePathIsInvalid) {
  ASSERT_EQ(::setenv("CARREL_HOME", "relative/home", 1), 0);
  const auto home = Home::open();
  ASSERT_FALSE(home.ok());
  EXPECT_EQ(home.error().code, Code::kInvalid);
  EXPECT_THAT(home.error().to_string(), HasSubstr("relative/home"));
}

TEST_F(HomeTest, MarkOfALiveSandboxIsNotAbandoned) {
  Home home = open_home();
  const std::string id = make_id();
  const auto mark = home.claim_once(id);
  ASSERT_TRUE(mark.ok());
  EXPECT_TRUE(abandoned_ids(home).empty());
}

TEST_F(HomeTest, MarkWithoutItsOwnerIsAbandoned) {
  Home home = open_home();
  const std::string live = make_id();
  const std::string dead = make_id();
  const auto mark = home.claim_once(live);
  ASSERT_TRUE(mark.ok() && home.claim_once(dead).ok());
  EXPECT_EQ(abandoned_ids(home), std::vector<std::string>{dead});
}

TEST_F(HomeTest, MarkOfAKilledProcessIsAbandoned) {
  Home home = open_home();
  const std::string id = make_id();
  const pid_t child = ::fork();
  if (child == 0) {
    auto mark = home.claim_once(id);
    ::raise(mark.ok() ? SIGKILL : SIGABRT);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_EQ(abandoned_ids(home), std::vector<std::string>{id});
}

TEST_F(HomeTest, ClaimsAndSweepsAtOnceNeverShareAMark) {
  Home home = open_home();
  std::atomic<bool> over = false;
  std::thread sweeper([&] {
    Home other = open_home();
    while (!over) {
      for (Home::Abandoned& mark : other.abandoned()) {
        other.release_once(mark.id);
        mark.lock.reset();
      }
    }
  });
  for (int i = 0; i < 1000; ++i) {
    const std::string id = make_id();
    const auto mark = home.claim_once(id);
    EXPECT_TRUE(mark.ok() && ::faccessat(home.once(), id.c_str(), F_OK, 0) == 0);
    home.release_once(id);
  }
  over = true;
  sweeper.join();
}

TEST_F(HomeTest, AbandonedMarkIsCleanedUpByOneAlone) {
  Home home = open_home();
  const std::string id = make_id();
  ASSERT_TRUE(home.claim_once(id).ok());
  const auto first = home.abandoned();
  EXPECT_EQ(first.size(), 1U);
  Home other = open_home();
  EXPECT_TRUE(other.abandoned().empty());
}

TEST_F(HomeTest, ReleasedMarkIsGone) {
  Home home = open_home();
  const std::string id = make_id();
  ASSERT_TRUE(home.claim_once(id).ok());
  home.release_once(id);
  EXPECT_TRUE(home.abandoned().empty());
  EXPECT_TRUE(home.claim_once(id).ok());
}

TEST_F(HomeTest, OneIdIsClaimedOnce) {
  Home home = open_home();
  const std::string id = make_id();
  ASSERT_TRUE(home.claim_once(id).ok());
  EXPECT_FALSE(home.claim_once(id).ok());
}

TEST_F(HomeTest, EveryRangeOfIdsIsGivenOnce) {
  constexpr std::uint32_t kLimit = 40;
  Home home = open_home();
  std::set<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < kLimit; ++i) {
    const auto number = home.claim_ids(make_id(), kLimit);
    ASSERT_TRUE(number.ok());
    EXPECT_LT(number.value(), kLimit);
    numbers.insert(number.value());
  }
  EXPECT_EQ(numbers.size(), kLimit);
  const auto more = home.claim_ids(make_id(), kLimit);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, Code::kResource);
}

TEST_F(HomeTest, RangesOfIdsAreUniqueAmongThreads) {
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint32_t kEach = 25;
  open_home();
  std::array<std::vector<std::uint32_t>, kThreads> claimed;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (auto& mine : claimed) {
    threads.emplace_back([&] {
      Home home = open_home();
      for (std::uint32_t i = 0; i < kEach; ++i) {
        mine.push_back(home.claim_ids(make_id(), kThreads * kEach).value());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::set<std::uint32_t> all;
  for (const auto& mine : claimed) {
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), kThreads * kEach);
}

TEST_F(HomeTest, RangesOfIdsAreUniqueAmongProcesses) {
  constexpr int kProcesses = 8;
  constexpr std::uint32_t kEach = 10;
  Home home = open_home();
  std::array<int, 2> fds{-1, -1};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  UniqueFd reader(fds[0]);
  UniqueFd writer(fds[1]);
  for (int i = 0; i < kProcesses; ++i) {
    if (::fork() == 0) {
      for (std::uint32_t j = 0; j < kEach; ++j) {
        const auto number = home.claim_ids(make_id(), kProcesses * kEach);
        const std::uint32_t value = number.ok() ? number.value() : ~0U;
        if (::write(writer.get(), &value, sizeof value) != sizeof value) {
          ::_exit(1);
        }
      }
      ::_exit(0);
    }
  }
  writer.reset();
  std::set<std::uint32_t> all;
  std::uint32_t value = 0;
  while (::read(reader.get(), &value, sizeof value) == sizeof value) {
    EXPECT_TRUE(all.insert(value).second) << value;
    EXPECT_LT(value, kProcesses * kEach);
  }
  for (int i = 0; i < kProcesses; ++i) {
    ::wait(nullptr);
  }
  EXPECT_EQ(all.size(), kProcesses * kEach);
}

TEST_F(HomeTest, RangeIsGivenBackByItsOwnerAlone) {
  Home home = open_home();
  const std::string id = make_id();
  const std::uint32_t number = home.claim_ids(id, 1).value();
  home.release_ids(make_id(), number);
  EXPECT_FALSE(home.claim_ids(make_id(), 1).ok());
  home.release_ids_of(make_id());
  EXPECT_FALSE(home.claim_ids(make_id(), 1).ok());
  home.release_ids(id, number);
  EXPECT_TRUE(home.claim_ids(make_id(), 1).ok());
}

TEST_F(HomeTest, AllRangesOfASandboxAreGivenBack) {
  Home home = open_home();
  const std::string id = make_id();
  ASSERT_TRUE(home.claim_ids(id, 3).ok());
  ASSERT_TRUE(home.claim_ids(id, 3).ok());
  ASSERT_TRUE(home.claim_ids(make_id(), 3).ok());
  home.release_ids_of(id);
  EXPECT_TRUE(home.claim_ids(make_id(), 3).ok());
  EXPECT_TRUE(home.claim_ids(make_id(), 3).ok());
  EXPECT_FALSE(home.claim_ids(make_id(), 3).ok());
}

TEST_F(HomeTest, FirstFreeRangeOfSomeIsTakenOrNone) {
  Home home = open_home();
  const std::string id = make_id();
  EXPECT_EQ(home.claim_ids_between(id, 5, 6), 5U);
  EXPECT_EQ(home.claim_ids_between(make_id(), 5, 6), 6U);
  EXPECT_FALSE(home.claim_ids_between(make_id(), 5, 6).has_value());
  EXPECT_EQ(home.ids_of(id), std::vector<std::uint32_t>{5});
  home.release_ids(id, 5);
  EXPECT_EQ(home.claim_ids_between(make_id(), 5, 6), 5U);
  EXPECT_TRUE(home.ids_of(id).empty());
}

TEST(MakeId, IsAUuidOfVersionFour) {
  for (int i = 0; i < 200; ++i) {
    EXPECT_THAT(make_id(), MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                        "[0-9a-f]{12}"));
  }
}

TEST(MakeId, UsesEveryDigitInEveryPlace) {
  std::array<std::set<char>, 36> seen;
  for (int i = 0; i < 2000; ++i) {
    const std::string id = make_id();
    for (std::size_t at = 0; at < id.size(); ++at) {
      seen[at].insert(id[at]);
    }
  }
  const std::map<std::size_t, std::size_t> narrow = {{8, 1},  {13, 1}, {14, 1},
                                                     {18, 1}, {19, 4}, {23, 1}};
  for (std::size_t at = 0; at < seen.size(); ++at) {
    EXPECT_EQ(seen[at].size(), narrow.contains(at) ? narrow.at(at) : 16U) << at;
  }
}

TEST(MakeId, IsNeverTheSameTwiceInThreads) {
  std::array<std::vector<std::string>, 8> ids;
  std::vector<std::thread> threads;
  threads.reserve(ids.size());
  for (auto& mine : ids) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < 500; ++i) {
        mine.push_back(make_id());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::set<std::string> all;
  for (const auto& mine : ids) {
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), 4000U);
}

TEST(RandomHex, HasAsManyDigitsAsAsked) {
  for (const std::size_t count : {0U, 1U, 8U, 36U, 200U}) {
    const std::string text = random_hex(count);
    EXPECT_EQ(text.size(), count);
    EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
}

}  // namespace
}  // namespace carrel::storage
