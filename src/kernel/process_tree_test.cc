#include "kernel/process_tree.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace carrel::kernel {
namespace {

TEST(ProcessTree, ChildrenAndGrandchildrenCount) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    if (::fork() == 0) {
      if (::write(ready[1], "x", 1) != 1) {
        ::_exit(1);
      }
      ::pause();
    }
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  auto usage = usage_of_tree(child);
  ASSERT_TRUE(usage.ok());
  EXPECT_EQ(usage.value().processes, 2U);
  EXPECT_GT(usage.value().memory_bytes, 0U);
  auto own = usage_of_tree(::getpid());
  EXPECT_GE(own.value().processes, 3U);
  ::kill(-child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessTree, AProcessWhoseStatusNobodyAskedForHasEnded) {
  pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(has_ended(child));
  EXPECT_FALSE(has_ended(::getpid()));
  EXPECT_FALSE(usage_of_tree(child).ok()) << "what is left of it uses nothing";
  ::waitpid(child, nullptr, 0);
}

TEST(ProcessTree, AProcessThatHasEndedIsAnError) {
  pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(usage_of_tree(child).error().code, Code::kGone);
}

}  // namespace
}  // namespace carrel::kernel
