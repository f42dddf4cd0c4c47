#include "kernel/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include "base/files.h"

namespace carrel::kernel {
namespace {

UniqueFd memory(const std::string& text = {}) {
  UniqueFd file(::memfd_create("x", MFD_CLOEXEC));
  EXPECT_TRUE(write_all(file.get(), text).ok());
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

std::string content(const UniqueFd& file) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::pread(file.get(), buffer.data(), buffer.size(), 0);
  return std::string(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
}

// What a shell says, and its end.
std::string shell(const std::string& script, ProgramRequest request = {}) {
  const UniqueFd output = memory();
  request.path = "/bin/sh";
  request.arguments = {"sh", "-c", script};
  request.output = output.get();
  auto program = start_program(request);
  EXPECT_TRUE(program.ok()) << program.error().to_string();
  int status = -1;
  EXPECT_EQ(::waitpid(program->pid, &status, 0), program->pid);
  return content(output) + (status == 0 ? "" : "status " + std::to_string(status));
}

TEST(Program, HasTheDescriptorsThatItIsGivenAndNoOthers) {
  const UniqueFd one = memory("one");
  const UniqueFd two = memory("two");
  const UniqueFd inheritable(::dup(one.get()));
  ASSERT_TRUE(inheritable.valid());
  ProgramRequest request;
  request.descriptors = {two.get(), one.get()};
  // Without a pipe, whose ends the shell would have for a moment.
  EXPECT_EQ(shell("cat <&3; cat <&4; ls /proc/$$/fd; :", request), "twoone0\n1\n2\n3\n4\n");
}

// What is locked is free when its owner is gone, also while a program of his is being started.
TEST(Program, HoldsNoLockOfItsMakersWhileItJoinsItsGroups) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reads(ends[0]);
  const UniqueFd full(ends[1]);
  while (::write(full.get(), "x", 1) == 1) {
  }
  ASSERT_EQ(::fcntl(full.get(), F_SETFL, 0), 0);
  const std::string path = "/tmp/carrel-program-" + std::to_string(::getpid());
  UniqueFd mine(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(mine.get(), LOCK_EX), 0);
  ProgramRequest request;
  request.join = {full.get()};
  std::thread starts([&] { EXPECT_EQ(shell("echo began", request), "began\n"); });
  // It is born with the lock, and stands still where it joins.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  mine.reset();
  const UniqueFd others(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(::flock(others.get(), LOCK_EX | LOCK_NB), 0);
  std::array<char, 65536> buffer{};
  EXPECT_GT(::read(reads.get(), buffer.data(), buffer.size()), 0);
  starts.join();
  ::unlink(path.c_str());
}

TEST(Program, BeginsWithNothingOfItsMakers) {
  ::setenv("CARREL_TEST_VARIABLE", "x", 1);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  EXPECT_EQ(shell("echo \"${CARREL_TEST_VARIABLE-none}\"; grep SigBlk /proc/self/status"),
            "none\nSigBlk:\t0000000000000000\n");
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Program, OneThatIsMissingIsToldBeforeItReturns) {
  ProgramRequest request;
  request.path = "/nowhere/program";
  request.arguments = {"program"};
  const auto program = start_program(request);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().code, Code::kNotFound);
}

// Else one that is there would have to be ended in the middle of what it does.
TEST(Program, OneThatCouldNotBeWatchedIsNotStarted) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::close(next);
  ProgramRequest request;
  request.path = "/no/such/program";
  request.arguments = {"program"};
  rlimit two = before;
  two.rlim_cur = static_cast<rlim_t>(next) + 2;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &two), 0);
  auto program = start_program(request);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().to_string(), "watch /no/such/program: Too many open files");
}

TEST(Program, AGroupThatCannotBeJoinedIsNoProgram) {
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ProgramRequest request;
  request.path = "/bin/true";
  request.arguments = {"true"};
  request.join = {file.get()};
  const auto program = start_program(request);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().error_number, EBADF);
}

TEST(Program, BecomesAnotherUserWithoutTheGroupsOfItsMaker) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become another";
  }
  ProgramRequest request;
  request.id = 1'900'000'123;
  EXPECT_EQ(shell("id -u; id -G; grep CapEff /proc/self/status", request),
            "1900000123\n1900000123\nCapEff:\t0000000000000000\n");
}

}  // namespace
}  // namespace carrel::kernel
