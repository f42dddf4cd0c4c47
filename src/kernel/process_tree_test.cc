#include "kernel/process_tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "base/files.h"

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

void* wait_for_ever(void* ready) {
  const int descriptor = *static_cast<int*>(ready);
  if (::write(descriptor, "x", 1) == 1) {
    ::pause();
  }
  return nullptr;
}

TEST(ProcessTree, AProcessThatCannotBeLookedAtHasNotEnded) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool ended = has_ended(::getpid());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(ended);
}

TEST(ProcessTree, AProcessRunsOnWithoutItsFirstThread) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  pid_t child = ::fork();
  if (child == 0) {
    pthread_t thread;
    if (::pthread_create(&thread, nullptr, wait_for_ever, &ready[1]) == 0) {
      ::syscall(SYS_exit, 0);  // this thread alone
    }
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string status = "/proc/" + std::to_string(child) + "/stat";
  std::string line;
  for (int tries = 0; tries < 10000 && line.find(") Z ") == std::string::npos; ++tries) {
    line = read_file_at(AT_FDCWD, status, 4096).value();
    ::usleep(1000);
  }
  ASSERT_NE(line.find(") Z "), std::string::npos) << line;
  EXPECT_FALSE(has_ended(child));
  EXPECT_TRUE(usage_of_tree(child).ok());
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
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
