#include "storage/images/unpack_room.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <functional>

#include "storage/images/images_test_support.h"

namespace carrel::storage {
namespace {

// What a process in the room gets for something it tries: 0 or an errno; 255 when there is no room.
// With Room::kNone it tries the same outside.
enum class Room { kEntered, kNone };

int tried(Room room, const Scratch& scratch, const std::function<bool()>& act) {
  const UniqueFd tree = scratch.directory("tree");
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (room == Room::kEntered &&
        !enter_unpack_room({.tree = tree.get(), .largest_file = 1 << 20}).ok()) {
      ::_exit(255);
    }
    if (room == Room::kNone && ::fchdir(tree.get()) != 0) {
      ::_exit(255);
    }
    errno = 0;
    ::_exit(act() ? 0 : errno);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

struct Attempt {
  const char* name;
  std::function<bool()> act;
};

std::vector<Attempt> attempts(const std::string& outside) {
  return {
      {"read a host file by its path",
       [outside] { return ::openat(AT_FDCWD, outside.c_str(), O_RDONLY) >= 0; }},
      {"read a host file by way of ..",
       [] { return ::openat(AT_FDCWD, "../outside", O_RDONLY) >= 0; }},
      {"write a host file",
       [outside] { return ::openat(AT_FDCWD, outside.c_str(), O_WRONLY | O_TRUNC) >= 0; }},
      {"make a socket", [] { return ::socket(AF_INET, SOCK_STREAM, 0) >= 0; }},
      {"make a pair of sockets",
       [] {
         int pair[2];
         return ::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
       }},
      {"start a process",
       [] {
         const pid_t pid =
             static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
         if (pid == 0) {
           ::_exit(0);
         }
         return pid > 0;
       }},
      {"make a set-id file",
       [] { return ::openat(AT_FDCWD, "set-id", O_WRONLY | O_CREAT, 04755) >= 0; }},
      {"set a set-id bit",
       [] {
         const int fd = ::openat(AT_FDCWD, "later", O_WRONLY | O_CREAT, 0755);
         return fd >= 0 && ::fchmod(fd, 04755) == 0;
       }},
      {"make a pipe", [] { return ::mkfifo("pipe", 0600) == 0; }},
      {"make memory executable",
       [] {
         return ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
       }},
      {"change directory", [] { return ::chdir("/") == 0; }},
      {"signal its parent", [] { return ::kill(::getppid(), 0) == 0; }},
  };
}

TEST(UnpackRoom, WhatWorksOutsideDoesNotWorkInside) {
  for (std::size_t i = 0; i < attempts("").size(); ++i) {
    const Scratch scratch;
    scratch.write("outside", "secret");
    const Attempt attempt = attempts(scratch / "outside")[i];
    EXPECT_EQ(tried(Room::kNone, scratch, attempt.act), 0) << "outside: " << attempt.name;
    const Scratch fresh;
    fresh.write("outside", "secret");
    const Attempt same = attempts(fresh / "outside")[i];
    const int inside = tried(Room::kEntered, fresh, same.act);
    EXPECT_TRUE(inside == EPERM || inside == EACCES || inside == ENOENT)
        << "inside: " << attempt.name << ": " << inside;
    EXPECT_EQ(fresh.read("outside"), "secret") << attempt.name;
  }
}

TEST(UnpackRoom, FilesBelowTheTreeCanBeMade) {
  const Scratch scratch;
  EXPECT_EQ(tried(Room::kEntered, scratch,
                  [] {
                    const int fd = ::openat(AT_FDCWD, "file", O_WRONLY | O_CREAT, 0644);
                    return fd >= 0 && ::write(fd, "x", 1) == 1 &&
                           ::mkdirat(AT_FDCWD, "dir", 0755) == 0 &&
                           ::symlinkat("anywhere", AT_FDCWD, "link") == 0;
                  }),
            0);
  EXPECT_EQ(scratch.read("tree/file"), "x");
}

TEST(UnpackRoom, WayUpEndsAtTheTree) {
  const auto act = [] { return ::openat(AT_FDCWD, "../../new", O_WRONLY | O_CREAT, 0644) >= 0; };
  const Scratch scratch;
  scratch.directory("tree");
  tried(Room::kEntered, scratch, act);
  EXPECT_FALSE(std::filesystem::exists(scratch / "../new"));
  EXPECT_FALSE(scratch.exists("new"));
  EXPECT_TRUE(scratch.exists("tree/new"));
}

TEST(UnpackRoom, FileCannotGrowBeyondItsLimit) {
  const Scratch scratch;
  EXPECT_NE(tried(Room::kEntered, scratch,
                  [] {
                    const int fd = ::openat(AT_FDCWD, "file", O_WRONLY | O_CREAT, 0644);
                    return ::pwrite(fd, "x", 1, 2 << 20) == 1;
                  }),
            0);
  struct stat info{};
  ASSERT_EQ(::stat((scratch / "tree/file").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 0);
}

}  // namespace
}  // namespace carrel::storage
