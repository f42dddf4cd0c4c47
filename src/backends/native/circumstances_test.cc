#include "backends/native/circumstances.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace carrel::native {
namespace {

// Whether a process that did this first is in other circumstances than this one.
bool differs_after(const std::function<bool()>& change) {
  const auto here = circumstances();
  const pid_t child = ::fork();
  if (child == 0) {
    if (!change()) {
      ::_exit(2);
    }
    ::_exit(circumstances() == here ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 2) << "the change was not possible";
  return WEXITSTATUS(status) == 1;
}

bool set_limit(__rlimit_resource resource, rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  return ::setrlimit(resource, &limit) == 0;
}

TEST(Circumstances, AreThoseOfAChild) {
  ASSERT_TRUE(circumstances().has_value());
  EXPECT_FALSE(differs_after([] { return true; }));
}

TEST(Circumstances, AskForLimitsThatTheGuestDoesNotSet) {
  EXPECT_TRUE(differs_after([] { return set_limit(RLIMIT_CPU, 1000, RLIM_INFINITY); }));
  EXPECT_TRUE(differs_after([] { return set_limit(RLIMIT_NOFILE, 64, 64); }));
  EXPECT_FALSE(differs_after([] {
    rlimit now{};
    return ::getrlimit(RLIMIT_NOFILE, &now) == 0 && set_limit(RLIMIT_NOFILE, 64, now.rlim_max);
  })) << "the guest sets its own";
}

TEST(Circumstances, AskForPriorityAndProcessors) {
  EXPECT_TRUE(differs_after([] { return ::nice(3) != -1; }));
  EXPECT_TRUE(differs_after([] {
    cpu_set_t one;
    if (::sched_getaffinity(0, sizeof one, &one) != 0 || CPU_COUNT(&one) < 2) {
      return ::nice(1) != -1;  // with one processor there is nothing to take away
    }
    const auto here = static_cast<std::size_t>(::sched_getcpu());
    CPU_ZERO(&one);
    CPU_SET(here, &one);
    return ::sched_setaffinity(0, sizeof one, &one) == 0;
  }));
}

TEST(Circumstances, AskForNamespaces) {
  EXPECT_TRUE(differs_after([] { return ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0; }));
}

TEST(Circumstances, OfAFilteredProcessCannotBeCompared) {
  EXPECT_TRUE(differs_after([] {
    sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog program{1, &allow};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 &&
           !circumstances().has_value();
  }));
}

}  // namespace
}  // namespace carrel::native
