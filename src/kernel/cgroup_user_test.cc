// An ordinary user with groups that were given to him, and without.
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/mman.h>

#include <cstdio>

#include "kernel/cgroup_test_support.h"

namespace carrel::kernel {
namespace {

using testing_support::exists_anywhere;
using testing_support::OwnLayout;
using testing_support::spawn_in;
using testing_support::wait_for;

constexpr unsigned kNobody = 65534;

// In a child, where a failed expectation of googletest would be lost: says what failed and ends the
// body with 1.
#define CARREL_CHILD_EXPECT(condition)                           \
  if (!(condition)) {                                            \
    std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
    return 1;                                                    \
  }

bool become_nobody() {
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0;
}

// What a service manager does to delegate a group.
void give_to_nobody(const CgroupLayout& layout, const std::string& group) {
  for (const CgroupHierarchy& hierarchy : layout.hierarchies()) {
    for (const char* file :
         {"", "/cgroup.procs", "/tasks", "/cgroup.subtree_control", "/cgroup.threads"}) {
      std::string path = layout.prefix() + group + file;
      if (::fchownat(hierarchy.home.get(), path.c_str(), kNobody, kNobody, 0) != 0) {
        EXPECT_EQ(errno, ENOENT) << path;
      }
    }
  }
}

// The group "user" of a test's layout, from the top of the hierarchies.
std::string given_group(const CgroupLayout& layout, pid_t test) {
  const bool in_home = layout.source(Controller::kMemory) == CgroupSource::kCgroupV2;
  return (in_home ? "/" + std::string(kCgroupHome) : std::string()) + "/carrel-test-" +
         std::to_string(test) + "-user";
}

int touch_64_mebibytes() {
  constexpr std::size_t kSize = 64U << 20U;
  void* area = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) {
    return 1;
  }
  auto* at = static_cast<volatile char*>(area);
  for (std::size_t i = 0; i < kSize; i += 4096) {
    at[i] = 1;
  }
  return 0;
}

int fork_five_times() {
  for (int i = 0; i < 5; ++i) {
    pid_t child = ::fork();
    if (child < 0) {
      return errno == EAGAIN ? 11 : 12;
    }
    if (child == 0) {
      ::pause();
    }
  }
  return 0;
}

// Everything a launcher does with a group. `expected` is what root found on this host.
int use_groups(const CgroupOptions& options, const CgroupLayout& expected) {
  auto detected = detect_cgroups(options);
  CARREL_CHILD_EXPECT(detected.ok());
  const CgroupLayout& layout = detected.value();
  for (Controller controller : {Controller::kMemory, Controller::kPids, Controller::kCpu}) {
    if (layout.source(controller) != expected.source(controller)) {
      std::fprintf(stderr, "%s\n", layout.why_missing(controller).c_str());
    }
    CARREL_CHILD_EXPECT(layout.source(controller) == expected.source(controller));
  }
  CARREL_CHILD_EXPECT(layout.has_v2() == expected.has_v2());
  CgroupLimits limits;
  limits.memory_bytes = 16U << 20U;
  limits.pids = 4;
  limits.cpu_millis = 500;
  auto cgroup = Cgroup::create(layout, "box", limits);
  CARREL_CHILD_EXPECT(cgroup.ok());
  CARREL_CHILD_EXPECT(cgroup->enforced().memory == layout.source(Controller::kMemory));
  CARREL_CHILD_EXPECT(cgroup->enforced().pids == layout.source(Controller::kPids));
  CARREL_CHILD_EXPECT(cgroup->enforced().cpu == layout.source(Controller::kCpu));

  if (layout.source(Controller::kMemory) != CgroupSource::kNone) {
    auto event = cgroup->oom_event_fd();
    CARREL_CHILD_EXPECT(event.ok());
    int status = wait_for(spawn_in(*cgroup, touch_64_mebibytes));
    CARREL_CHILD_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CARREL_CHILD_EXPECT(cgroup->oom_kills() == 1);
    pollfd waiting{event.value().get(), POLLIN, 0};
    CARREL_CHILD_EXPECT(::poll(&waiting, 1, 1000) == 1);
  }
  if (layout.source(Controller::kPids) != CgroupSource::kNone) {
    int status = wait_for(spawn_in(*cgroup, fork_five_times));
    CARREL_CHILD_EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 11);
    CARREL_CHILD_EXPECT(cgroup->populated());
  }
  CARREL_CHILD_EXPECT(cgroup->freeze().ok());
  CARREL_CHILD_EXPECT(cgroup->kill().ok());
  CARREL_CHILD_EXPECT(list_cgroups(layout).size() == 1);
  CARREL_CHILD_EXPECT(cgroup->remove().ok());
  CARREL_CHILD_EXPECT(!exists_anywhere(layout, "box"));
  return 0;
}

// A kernel before 5.14: its owner may not write to cgroup.kill.
int end_group_without_kill_file(const CgroupOptions& options) {
  auto layout = detect_cgroups(options);
  CARREL_CHILD_EXPECT(layout.ok() && layout->has_v2());
  auto cgroup = Cgroup::create(*layout, "box", {});
  CARREL_CHILD_EXPECT(cgroup.ok());
  const int directory = cgroup->clone_into_fd();
  CARREL_CHILD_EXPECT(::fchmodat(directory, "cgroup.kill", 0, 0) == 0);
  CARREL_CHILD_EXPECT(::openat(directory, "cgroup.kill", O_WRONLY) < 0 && errno == EACCES);
  const pid_t pid = spawn_in(*cgroup, [] {
    for (int i = 0; i < 20 && ::fork() == 0; ++i) {
      ::setsid();
    }
    for (;;) {
      ::pause();
    }
    return 0;
  });
  CARREL_CHILD_EXPECT(cgroup->kill().ok());
  const int status = wait_for(pid);
  CARREL_CHILD_EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  CARREL_CHILD_EXPECT(!cgroup->populated());
  CARREL_CHILD_EXPECT(cgroup->remove().ok());
  return 0;
}

class CgroupUser : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "needs root to become another user";
    }
    if (layout_->hierarchies().empty()) {
      GTEST_SKIP() << "no cgroup hierarchy can be written: " << layout_->why_no_v2();
    }
  }
  OwnLayout layout_;
};

TEST_F(CgroupUser, DelegatedGroupIsEnoughForEverything) {
  auto group = Cgroup::create(layout_.get(), "user", {});
  ASSERT_TRUE(group.ok()) << group.error().to_string();
  give_to_nobody(layout_.get(), "user");
  int status = wait_for(spawn_in(*group, [this] {
    CARREL_CHILD_EXPECT(become_nobody());
    CgroupOptions options;
    options.label = "inner";
    return use_groups(options, layout_.get());
  }));
  EXPECT_EQ(status, 0);
}

TEST_F(CgroupUser, DelegatedParentCanBeNamed) {
  auto group = Cgroup::create(layout_.get(), "user", {});
  ASSERT_TRUE(group.ok()) << group.error().to_string();
  give_to_nobody(layout_.get(), "user");
  int status = wait_for(spawn_in(*group, [this] {
    CARREL_CHILD_EXPECT(become_nobody());
    CgroupOptions options;
    options.label = "inner";
    options.parent = given_group(layout_.get(), ::getppid()) + "/";
    return use_groups(options, layout_.get());
  }));
  EXPECT_EQ(status, 0);
}

TEST_F(CgroupUser, KillWithoutItsFileFreezesAndSignals) {
  if (!layout_->has_v2()) {
    GTEST_SKIP() << "no v2 tree: " << layout_->why_no_v2();
  }
  auto group = Cgroup::create(layout_.get(), "user", {});
  ASSERT_TRUE(group.ok()) << group.error().to_string();
  give_to_nobody(layout_.get(), "user");
  int status = wait_for(spawn_in(*group, [] {
    CARREL_CHILD_EXPECT(become_nobody());
    CgroupOptions options;
    options.label = "inner";
    return end_group_without_kill_file(options);
  }));
  EXPECT_EQ(status, 0);
}

TEST_F(CgroupUser, WithoutDelegationNothingIsEnforced) {
  pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit([] {
      CARREL_CHILD_EXPECT(become_nobody());
      CgroupOptions options;
      options.label = "inner";
      auto layout = detect_cgroups(options);
      CARREL_CHILD_EXPECT(layout.ok());
      CARREL_CHILD_EXPECT(layout->hierarchies().empty());
      CARREL_CHILD_EXPECT(!layout->why_missing(Controller::kMemory).empty());
      CgroupLimits limits;
      limits.memory_bytes = 1U << 20U;
      limits.pids = 1;
      limits.cpu_millis = 1;
      auto cgroup = Cgroup::create(*layout, "box", limits);
      CARREL_CHILD_EXPECT(cgroup.ok());
      CARREL_CHILD_EXPECT(cgroup->enforced().memory == CgroupSource::kNone);
      CARREL_CHILD_EXPECT(cgroup->enforced().pids == CgroupSource::kNone);
      CARREL_CHILD_EXPECT(cgroup->enforced().cpu == CgroupSource::kNone);
      CARREL_CHILD_EXPECT(cgroup->clone_into_fd() == -1);
      CARREL_CHILD_EXPECT(cgroup->join_fds().ok() && cgroup->join_fds()->empty());
      CARREL_CHILD_EXPECT(cgroup->remove().ok());
      return 0;
    }());
  }
  EXPECT_EQ(wait_for(pid), 0);
}

TEST_F(CgroupUser, GroupGivenElsewhereCannotBeClonedInto) {
  if (!layout_->has_v2()) {
    GTEST_SKIP() << "no v2 tree: " << layout_->why_no_v2();
  }
  auto group = Cgroup::create(layout_.get(), "user", {});
  ASSERT_TRUE(group.ok()) << group.error().to_string();
  give_to_nobody(layout_.get(), "user");
  std::string parent = given_group(layout_.get(), ::getpid());
  pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit([&] {
      CARREL_CHILD_EXPECT(become_nobody());
      CgroupOptions options;
      options.label = "inner";
      options.parent = parent;
      auto layout = detect_cgroups(options);
      CARREL_CHILD_EXPECT(layout.ok());
      CARREL_CHILD_EXPECT(!layout->has_v2());
      CARREL_CHILD_EXPECT(layout->why_no_v2().find("denied") != std::string::npos);
      return 0;
    }());
  }
  EXPECT_EQ(wait_for(pid), 0);
}

}  // namespace
}  // namespace carrel::kernel
