#include "kernel/cgroup.h"

#include <gmock/gmock.h>
#include <sys/prctl.h>

#include "base/files.h"
#include "kernel/cgroup_entry.h"
#include "kernel/cgroup_test_support.h"

namespace carrel::kernel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::exists;
using testing_support::exists_anywhere;
using testing_support::OwnLayout;
using testing_support::spawn_in;
using testing_support::wait_for;

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    if (layout_->hierarchies().empty()) {
      GTEST_SKIP() << "no cgroup hierarchy can be written: " << layout_->why_no_v2();
    }
  }

  Cgroup make(const std::string& id) {
    auto cgroup = Cgroup::create(layout_.get(), id, {});
    if (!cgroup.ok()) {
      ADD_FAILURE() << cgroup.error().to_string();
      std::abort();
    }
    return std::move(cgroup.value());
  }

  [[nodiscard]] std::string directory(const std::string& group) const {
    return layout_->prefix() + group;
  }

  OwnLayout layout_;
};

TEST_F(CgroupTest, LookingMakesNothing) {
  EXPECT_THAT(list_cgroups(layout_.get()), IsEmpty());
  for (const CgroupHierarchy& hierarchy : layout_->hierarchies()) {
    for (const std::string& name : child_groups(hierarchy.home.get(), "")) {
      EXPECT_FALSE((name + "-").starts_with(layout_->prefix())) << hierarchy.directory;
    }
  }
}

// The kernel would take them, and make it a group in which nothing can be placed.
TEST_F(CgroupTest, PopulatedGroupGetsNoThreadedControllers) {
  if (layout_->source(Controller::kPids) != CgroupSource::kCgroupV2) {
    GTEST_SKIP() << "the pids controller is not a v2 one here";
  }
  Cgroup cgroup = make("busy");
  pid_t pid = spawn_in(cgroup, [] { return ::pause(); });
  const int home = layout_->hierarchies()[*layout_->v2_index()].home.get();
  EXPECT_TRUE(
      enable_controllers(home, directory("busy"), {Controller::kPids, Controller::kCpu}).empty());
  EXPECT_EQ(SmallEntry(home, directory("busy"), "cgroup.type").text(), "domain\n");
  EXPECT_TRUE(cgroup.remove().ok());
  wait_for(pid);
}

// A service manager that does not know the groups wants its controllers back.
TEST_F(CgroupTest, ControllersCannotBeTakenAwayFromTheTop) {
  if (layout_->source(Controller::kCpu) != CgroupSource::kCgroupV2 || ::geteuid() != 0) {
    GTEST_SKIP() << "the cpu controller is not a v2 one here, or not root's";
  }
  const CgroupHierarchy& v2 = layout_->hierarchies()[*layout_->v2_index()];
  EXPECT_TRUE(v2.directory.ends_with("/" + std::string(kCgroupHome))) << v2.directory;
  EXPECT_EQ(write_entry(v2.home.get(), "..", "cgroup.subtree_control", "-cpu"), EBUSY);
}

TEST_F(CgroupTest, LookingNeedsNoRightToPlace) {
  Cgroup cgroup = make("seen");
  CgroupOptions options;
  options.label = layout_->prefix().substr(7, layout_->prefix().size() - 8);
  options.use = CgroupUse::kLook;
  auto looking = detect_cgroups(options);
  ASSERT_TRUE(looking.ok());
  EXPECT_THAT(list_cgroups(looking.value()), ElementsAre("seen"));
  EXPECT_EQ(looking->source(Controller::kMemory), layout_->source(Controller::kMemory));
  EXPECT_TRUE(cgroup.remove().ok());
}

TEST_F(CgroupTest, GroupIsInEveryHierarchyUntilItIsRemoved) {
  Cgroup cgroup = make("one");
  for (const CgroupHierarchy& hierarchy : layout_->hierarchies()) {
    EXPECT_TRUE(exists(layout_.get(), hierarchy, "one")) << hierarchy.directory;
  }
  EXPECT_TRUE(cgroup.remove().ok());
  EXPECT_FALSE(exists_anywhere(layout_.get(), "one"));
  EXPECT_TRUE(cgroup.remove().ok());
}

TEST_F(CgroupTest, DestructorRemovesAndReleaseKeeps) {
  {
    Cgroup gone = make("gone");
    Cgroup kept = make("kept");
    kept.release();
    Cgroup moved = std::move(gone);
    EXPECT_TRUE(exists_anywhere(layout_.get(), "gone"));
  }
  EXPECT_FALSE(exists_anywhere(layout_.get(), "gone"));
  EXPECT_TRUE(exists_anywhere(layout_.get(), "kept"));
}

TEST_F(CgroupTest, AssignmentRemovesTheOldGroup) {
  Cgroup cgroup = make("old");
  cgroup = make("new");
  EXPECT_FALSE(exists_anywhere(layout_.get(), "old"));
  EXPECT_TRUE(exists_anywhere(layout_.get(), "new"));
}

TEST_F(CgroupTest, SecondGroupOfTheSameIdIsAConflict) {
  Cgroup cgroup = make("twice");
  auto second = Cgroup::create(layout_.get(), "twice", {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_TRUE(exists_anywhere(layout_.get(), "twice"));
}

TEST_F(CgroupTest, GroupThatIsThereCanBeTakenOverUnlessSomebodyIsInIt) {
  CgroupLimits limits;
  limits.pids = 7;
  limits.memory_bytes = 64U << 20;
  {
    Cgroup first = make("again");
    EXPECT_TRUE(first.is_as_new(16U << 20));
    first.release();
  }
  auto taken = Cgroup::take(layout_.get(), "again", limits);
  ASSERT_TRUE(taken.ok()) << taken.error().to_string();
  EXPECT_NE(taken->enforced().pids, CgroupSource::kNone);
  const pid_t pid = spawn_in(taken.value(), [] { return ::pause(); });
  for (int i = 0; i < 2000 && !taken->has_processes(); ++i) {
    ::usleep(1000);  // it joins the groups by itself
  }
  EXPECT_TRUE(taken->has_processes());
  EXPECT_FALSE(taken->is_as_new(16U << 20));
  const auto second = Cgroup::take(layout_.get(), "again", limits);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kConflict);
  EXPECT_TRUE(taken->populated()) << "whoever was refused has left it as it is";
  EXPECT_TRUE(taken->remove().ok());
  wait_for(pid);
}

TEST_F(CgroupTest, GroupToWhichMuchIsStillCountedIsNotAsNew) {
  const UniqueFd file(::open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  Cgroup cgroup = make("reader");
  if (!cgroup.usage().memory_bytes.has_value()) {
    GTEST_SKIP() << "this host has no memory controller";
  }
  const pid_t pid = spawn_in(cgroup, [&] {
    const std::vector<char> piece(1U << 20, 'x');
    for (int i = 0; i < 24; ++i) {
      if (::write(file.get(), piece.data(), piece.size()) < 0) {
        return 1;
      }
    }
    return 0;
  });
  EXPECT_EQ(wait_for(pid), 0);
  EXPECT_FALSE(cgroup.has_processes());
  EXPECT_FALSE(cgroup.is_as_new(8U << 20));
  EXPECT_TRUE(cgroup.is_as_new(256U << 20));
  EXPECT_TRUE(cgroup.remove().ok());
}

TEST_F(CgroupTest, FailedCreationLeavesNothing) {
  const CgroupHierarchy& last = layout_->hierarchies().back();
  ASSERT_EQ(::mkdirat(last.home.get(), directory("half").c_str(), 0755), 0);
  EXPECT_FALSE(Cgroup::create(layout_.get(), "half", {}).ok());
  for (const CgroupHierarchy& hierarchy : layout_->hierarchies()) {
    EXPECT_EQ(exists(layout_.get(), hierarchy, "half"), &hierarchy == &last) << hierarchy.directory;
  }
}

TEST_F(CgroupTest, NamesThatLeaveTheDirectoryAreRefused) {
  for (const char* name : {"", ".", "..", "a/b", "../x", "cgroup.procs", "a b"}) {
    auto cgroup = Cgroup::create(layout_.get(), name, {});
    ASSERT_FALSE(cgroup.ok()) << name;
    EXPECT_EQ(cgroup.error().code, Code::kInvalid) << name;
  }
  CgroupOptions options;
  options.label = "../x";
  EXPECT_EQ(detect_cgroups(options).error().code, Code::kInvalid);
  options.label = "x";
  options.parent = "a/../..";
  EXPECT_EQ(detect_cgroups(options).error().code, Code::kInvalid);
}

TEST_F(CgroupTest, ProcessIsPlacedInEveryHierarchy) {
  Cgroup cgroup = make("placed");
  pid_t pid = spawn_in(cgroup, [] { return ::pause(); });
  std::string text;
  // The child joins the v1 groups itself, a moment after it was made.
  for (int i = 0; i < 1000; ++i) {
    auto read = read_file_at(AT_FDCWD, "/proc/" + std::to_string(pid) + "/cgroup");
    ASSERT_TRUE(read.ok());
    text = read.value();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("-placed\n", at)) != std::string::npos; ++at) {
      ++count;
    }
    if (count == layout_->hierarchies().size()) {
      break;
    }
    ::usleep(1000);
  }
  for (const CgroupHierarchy& hierarchy : layout_->hierarchies()) {
    auto members = read_file_at(hierarchy.home.get(), directory("placed/cgroup.procs"));
    ASSERT_TRUE(members.ok());
    EXPECT_EQ(members.value(), std::to_string(pid) + "\n") << hierarchy.directory;
  }
  EXPECT_TRUE(cgroup.populated());
  EXPECT_TRUE(cgroup.remove().ok());
  wait_for(pid);
}

TEST_F(CgroupTest, AttachMovesARunningProcess) {
  Cgroup cgroup = make("attached");
  pid_t pid = ::fork();
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  Status attached = cgroup.attach(pid);
  EXPECT_TRUE(attached.ok()) << attached.error().to_string();
  for (const CgroupHierarchy& hierarchy : layout_->hierarchies()) {
    auto members = read_file_at(hierarchy.home.get(), directory("attached/cgroup.procs"));
    ASSERT_TRUE(members.ok());
    EXPECT_EQ(members.value(), std::to_string(pid) + "\n") << hierarchy.directory;
  }
  EXPECT_TRUE(cgroup.kill().ok());
  EXPECT_EQ(wait_for(pid), SIGKILL);
}

// A daemon in a session of its own, whose parents have ended. Its pid comes through the pipe.
int leave_a_daemon(int report) {
  if (::fork() == 0) {
    ::setsid();
    if (::fork() == 0) {
      ::signal(SIGTERM, SIG_IGN);
      pid_t self = ::getpid();
      if (::write(report, &self, sizeof self) != sizeof self) {
        ::_exit(1);
      }
      for (;;) {
        ::pause();
      }
    }
    ::_exit(0);
  }
  ::wait(nullptr);
  return 0;
}

TEST_F(CgroupTest, KillEndsDoubleForkedDaemons) {
  // The orphaned daemon comes to this process, which can see it end.
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  Cgroup cgroup = make("daemons");
  int report[2];
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  EXPECT_EQ(wait_for(spawn_in(cgroup, [&] { return leave_a_daemon(report[1]); })), 0);
  pid_t daemon = 0;
  ASSERT_EQ(::read(report[0], &daemon, sizeof daemon), static_cast<ssize_t>(sizeof daemon));
  EXPECT_TRUE(cgroup.populated());
  EXPECT_TRUE(cgroup.kill().ok());
  EXPECT_EQ(wait_for(daemon), SIGKILL);
  EXPECT_TRUE(cgroup.remove().ok());
  EXPECT_FALSE(exists_anywhere(layout_.get(), "daemons"));
  ::close(report[0]);
  ::close(report[1]);
}

TEST_F(CgroupTest, RemoveEndsAProcessThatIsOnlyInAV1Group) {
  Cgroup cgroup = make("stray");
  auto joins = cgroup.join_fds();
  ASSERT_TRUE(joins.ok());
  if (joins.value().empty()) {
    GTEST_SKIP() << "this host has no v1 hierarchy";
  }
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  pid_t pid = ::fork();
  if (pid == 0) {
    bool joined = ::write(joins.value().front().get(), "0", 1) == 1;
    if (joined && ::write(ready[1], "x", 1) == 1) {
      ::pause();
    }
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Status removed = cgroup.remove();
  EXPECT_TRUE(removed.ok()) << removed.error().to_string();
  EXPECT_EQ(wait_for(pid), SIGKILL);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(CgroupTest, FrozenProcessStandsStillUntilThawed) {
  Cgroup cgroup = make("frozen");
  int beats[2];
  ASSERT_EQ(::pipe2(beats, O_CLOEXEC | O_NONBLOCK), 0);
  pid_t pid = spawn_in(cgroup, [&] {
    for (;;) {
      (void)!::write(beats[1], "x", 1);
      ::usleep(1000);
    }
    return 0;
  });
  Status frozen = cgroup.freeze();
  ASSERT_TRUE(frozen.ok()) << frozen.error().to_string();
  char buffer[4096];
  while (::read(beats[0], buffer, sizeof buffer) > 0) {
  }
  ::usleep(50'000);
  EXPECT_EQ(::read(beats[0], buffer, sizeof buffer), -1);
  EXPECT_TRUE(cgroup.thaw().ok());
  ssize_t got = -1;
  for (int i = 0; i < 1000 && got <= 0; ++i) {
    ::usleep(1000);
    got = ::read(beats[0], buffer, sizeof buffer);
  }
  EXPECT_GT(got, 0);
  EXPECT_TRUE(cgroup.freeze().ok());
  EXPECT_TRUE(cgroup.remove().ok());
  EXPECT_EQ(wait_for(pid), SIGKILL);
  ::close(beats[0]);
  ::close(beats[1]);
}

TEST_F(CgroupTest, LeavesAreRemovedWithTheirGroup) {
  Cgroup cgroup = make("tree");
  CgroupLimits limits;
  limits.memory_bytes = 64U << 20U;
  auto work = cgroup.subgroup("work", limits);
  auto guest = cgroup.subgroup("guest", {});
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(work->name(), "tree/work");
  EXPECT_TRUE(exists_anywhere(layout_.get(), "tree/work"));
  auto nested = work->subgroup("deep", {});
  ASSERT_FALSE(nested.ok());
  EXPECT_EQ(nested.error().code, Code::kInvalid);
  EXPECT_TRUE(cgroup.remove().ok());
  EXPECT_FALSE(exists_anywhere(layout_.get(), "tree"));
  EXPECT_TRUE(work->remove().ok());
}

TEST_F(CgroupTest, LeafWithoutALimitUsesItsParentsV1Groups) {
  if (!layout_->has_v2() || layout_->hierarchies().size() < 2) {
    GTEST_SKIP() << "needs a v2 tree beside v1 hierarchies";
  }
  Cgroup cgroup = make("shared");
  auto guest = cgroup.subgroup("guest", {});
  ASSERT_TRUE(guest.ok());
  pid_t pid = spawn_in(*guest, [] { return ::pause(); });
  std::string line = "-shared\n";
  std::string text;
  for (int i = 0; i < 1000 && text.find(line) == std::string::npos; ++i) {
    ::usleep(1000);
    auto read = read_file_at(AT_FDCWD, "/proc/" + std::to_string(pid) + "/cgroup");
    ASSERT_TRUE(read.ok());
    text = read.value();
  }
  EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, HasSubstr("-shared/guest\n"));
  EXPECT_TRUE(cgroup.populated());
  EXPECT_TRUE(cgroup.remove().ok());
  EXPECT_EQ(wait_for(pid), SIGKILL);
}

TEST_F(CgroupTest, AdoptedGroupIsRemovedWithItsLeavesAndProcesses) {
  pid_t pid = 0;
  {
    Cgroup cgroup = make("orphan");
    auto work = cgroup.subgroup("work", {});
    ASSERT_TRUE(work.ok());
    pid = spawn_in(*work, [] { return ::pause(); });
    work->release();
    cgroup.release();
  }
  EXPECT_THAT(list_cgroups(layout_.get()), ElementsAre("orphan"));
  {
    auto looked = Cgroup::open(layout_.get(), "orphan", CgroupOwnership::kBorrowed);
    ASSERT_TRUE(looked.ok());
    auto work = looked->open_subgroup("work", CgroupOwnership::kBorrowed);
    ASSERT_TRUE(work.ok());
    EXPECT_TRUE(work->populated());
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0);
  {
    auto adopted = Cgroup::open(layout_.get(), "orphan");
    ASSERT_TRUE(adopted.ok());
    EXPECT_EQ(adopted->open_subgroup("none").error().code, Code::kNotFound);
  }
  EXPECT_EQ(wait_for(pid), SIGKILL);
  EXPECT_THAT(list_cgroups(layout_.get()), IsEmpty());
  EXPECT_EQ(Cgroup::open(layout_.get(), "orphan").error().code, Code::kNotFound);
}

TEST_F(CgroupTest, LeftoverInOneHierarchyIsListedAndRemoved) {
  const CgroupHierarchy& last = layout_->hierarchies().back();
  ASSERT_EQ(::mkdirat(last.home.get(), directory("leftover").c_str(), 0755), 0);
  EXPECT_THAT(list_cgroups(layout_.get()), ElementsAre("leftover"));
  auto left = Cgroup::open(layout_.get(), "leftover");
  ASSERT_TRUE(left.ok());
  EXPECT_TRUE(left->remove().ok());
  EXPECT_THAT(list_cgroups(layout_.get()), IsEmpty());
}

TEST_F(CgroupTest, GroupsOfAnotherLabelAreNotListed) {
  OwnLayout other("-other");
  Cgroup mine = make("mine");
  auto theirs = Cgroup::create(other.get(), "theirs", {});
  ASSERT_TRUE(theirs.ok());
  EXPECT_THAT(list_cgroups(layout_.get()), ElementsAre("mine"));
  EXPECT_THAT(list_cgroups(other.get()), ElementsAre("theirs"));
  EXPECT_EQ(Cgroup::open(layout_.get(), "theirs").error().code, Code::kNotFound);
}

TEST_F(CgroupTest, ParentThatDoesNotExistGivesNothing) {
  OwnLayout nowhere("-nowhere", "carrel-test-no-such-group");
  EXPECT_TRUE(nowhere->hierarchies().empty());
  EXPECT_EQ(nowhere->source(Controller::kMemory), CgroupSource::kNone);
  EXPECT_THAT(nowhere->why_no_v2(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace carrel::kernel
