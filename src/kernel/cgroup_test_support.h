#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "kernel/cgroup.h"

namespace carrel::kernel::testing_support {

// A layout with a label of this test's own; whatever a test leaves in it is removed at the end, and
// then there must be nothing.
class OwnLayout {
 public:
  explicit OwnLayout(const std::string& suffix = "", std::optional<std::string> parent = {}) {
    CgroupOptions options;
    options.label = "test" + suffix + "-" + std::to_string(::getpid());
    options.parent = std::move(parent);
    auto detected = detect_cgroups(options);
    if (detected.ok()) {
      layout_ = std::move(detected.value());
    } else {
      ADD_FAILURE() << detected.error().to_string();
    }
  }
  OwnLayout(const OwnLayout&) = delete;
  OwnLayout& operator=(const OwnLayout&) = delete;
  ~OwnLayout() {
    for (const std::string& id : list_cgroups(layout_)) {
      auto left = Cgroup::open(layout_, id);
      if (left.ok()) {
        EXPECT_TRUE(left->remove().ok());
      }
    }
    EXPECT_TRUE(list_cgroups(layout_).empty());
  }

  const CgroupLayout& get() const { return layout_; }
  const CgroupLayout* operator->() const { return &layout_; }

 private:
  CgroupLayout layout_;
};

// A child in every hierarchy of the group, placed as the launcher places it. It runs `body` and
// ends with what that returns; 120 if it could not be placed.
template <typename Body>
pid_t spawn_in(Cgroup& cgroup, Body body) {
  auto joins = cgroup.join_fds();
  if (!joins.ok()) {
    ADD_FAILURE() << joins.error().to_string();
    return -1;
  }
  clone_args arguments{};
  arguments.exit_signal = SIGCHLD;
  if (int fd = cgroup.clone_into_fd(); fd >= 0) {
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<unsigned>(fd);
  }
  auto pid = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
  if (pid == 0) {
    for (const UniqueFd& join : joins.value()) {
      if (::write(join.get(), "0", 1) != 1) {
        ::_exit(120);
      }
    }
    ::_exit(body());
  }
  EXPECT_GT(pid, 0) << "clone3: " << errno;
  return pid;
}

inline int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

inline bool exists(const CgroupLayout& layout, const CgroupHierarchy& hierarchy,
                   const std::string& group) {
  struct stat info{};
  return ::fstatat(hierarchy.home.get(), (layout.prefix() + group).c_str(), &info, 0) == 0;
}

inline bool exists_anywhere(const CgroupLayout& layout, const std::string& group) {
  for (const CgroupHierarchy& hierarchy : layout.hierarchies()) {
    if (exists(layout, hierarchy, group)) {
      return true;
    }
  }
  return false;
}

}  // namespace carrel::kernel::testing_support

// Ends the test where this machine gives no group to work with, and says why.
#define CARREL_NEEDS(layout, controller)                                  \
  if ((layout)->source(controller) == CgroupSource::kNone) {              \
    GTEST_SKIP() << "no " << controller_name(controller)                  \
                 << " controller: " << (layout)->why_missing(controller); \
  }
