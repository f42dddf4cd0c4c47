#include "egress/lockdown.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "kernel/uapi/landlock.h"

namespace carrel::egress {
namespace {

class LockDown : public ::testing::Test {
 protected:
  LockDown() {
    char name[] = "/tmp/carrel-lockdown-XXXXXX";
    root_ = ::mkdtemp(name);
    home_.emplace(std::move(storage::Home::open_at(root_).value()));
    std::filesystem::create_directories(root_ + "/run");
    std::filesystem::create_directories(root_ + "/net");
    std::filesystem::create_directories(root_ + "/secrets");
    std::ofstream(root_ + "/state.db") << "secret";
    std::ofstream(root_ + "/net/log") << "";
  }
  ~LockDown() override { std::filesystem::remove_all(root_); }

  // Whether it can be done by a process that has locked itself down, and by one that has not.
  enum class Who { kLocked, kFree };
  bool can(Who who, const std::function<bool()>& something) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (who == Who::kLocked && !lock_down(*home_).ok()) {
        ::_exit(2);
      }
      ::_exit(something() ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << "it did not lock itself down";
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  void expect_given_up(const std::string& what, const std::function<bool()>& something) {
    EXPECT_TRUE(can(Who::kFree, something)) << what;
    EXPECT_FALSE(can(Who::kLocked, something)) << what;
  }
  void expect_kept(const std::string& what, const std::function<bool()>& something) {
    EXPECT_TRUE(can(Who::kLocked, something)) << what;
  }

  std::string root_;
  std::optional<storage::Home> home_;
};

bool opens(const std::string& path, int flags) {
  return ::open(path.c_str(), flags | O_CLOEXEC, 0600) >= 0;
}

TEST_F(LockDown, FilesOfTheInstallationAndOfTheHostAreOutOfReach) {
  if (::syscall(kernel::uapi::kLandlockCreateRuleset, nullptr, 0,
                kernel::uapi::kLandlockQueryVersion) < 1) {
    GTEST_SKIP() << "this kernel has no Landlock";
  }
  expect_given_up("state", [&] { return opens(root_ + "/state.db", O_RDONLY); });
  expect_given_up("state, written", [&] { return opens(root_ + "/state.db", O_RDWR); });
  expect_given_up("a new file", [&] { return opens(root_ + "/new", O_RDWR | O_CREAT); });
  expect_given_up("a program", [&] { return opens("/usr/bin/env", O_RDONLY); });
  expect_given_up("elsewhere", [] { return opens("/tmp", O_RDONLY | O_DIRECTORY); });
  expect_kept("its log", [&] { return opens(root_ + "/net/log", O_WRONLY | O_APPEND); });
  expect_kept("registrations", [&] { return opens(root_ + "/run/new", O_RDWR | O_CREAT); });
  expect_kept("the host's resolver", [] { return opens("/etc/passwd", O_RDONLY); });
}

TEST_F(LockDown, ItStartsNobodyAndSpeaksOnlyWhatItNeeds) {
  expect_given_up("a process", [] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(0);
    }
    return child > 0;
  });
  expect_given_up("a signal", [] { return ::kill(::getpid(), 0) == 0; });
  expect_given_up("another family", [] {
    return ::socket(AF_NETLINK, SOCK_RAW, 9) >= 0 || ::socket(AF_NETLINK, SOCK_RAW, 4) >= 0;
  });
  expect_given_up("memory that is code", [] {
    void* page = nullptr;
    return ::syscall(SYS_mmap, page, 4096, 7, 0x22, -1, 0) > 0;
  });
  expect_kept("connections", [] { return ::socket(AF_INET, SOCK_STREAM, 0) >= 0; });
}

}  // namespace
}  // namespace carrel::egress
