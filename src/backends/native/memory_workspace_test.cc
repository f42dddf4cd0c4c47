#include "backends/native/memory_workspace.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

namespace carrel::native {
namespace {

namespace fs = std::filesystem;

// A process whose root is a directory of its own, as that of a sandbox would be.
class MemoryWorkspace : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "another root takes root";
    }
    char name[] = "/var/tmp/carrel-memory-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  void TearDown() override {
    end();
    if (!path_.empty()) {
      fs::remove_all(path_);
    }
  }
  // Opens it after `prepare` was done in its mount namespace.
  Result<UniqueFd> open_after(const std::function<void()>& prepare) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    child_ = ::fork();
    if (child_ == 0) {
      if (::unshare(CLONE_NEWNS) == 0 &&
          ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
          ::chdir(path_.c_str()) == 0) {
        prepare();
        (void)!::chroot(".");
      }
      (void)!::write(ends[1], "", 1);
      for (;;) {
        ::pause();
      }
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    record_.id = "a";
    record_.pid = child_;
    record_.start_time = storage::start_time_of(child_);
    record_.boot_id = storage::boot_id();
    return open_memory_workspace(record_);
  }
  void end() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
      child_ = 0;
    }
  }

  std::string path_;
  pid_t child_ = 0;
  storage::BoxRecord record_;
};

TEST_F(MemoryWorkspace, IsTheSandboxsOwnDirectory) {
  auto files = open_after([] {
    ::mkdir("workspace", 0755);
    ::mount("tmpfs", "workspace", "tmpfs", 0, nullptr);
    ::mkdir("workspace/inside", 0755);
  });
  ASSERT_TRUE(files.ok()) << files.error().to_string();
  EXPECT_EQ(::faccessat(files->get(), "inside", F_OK, 0), 0);
}

TEST_F(MemoryWorkspace, AnotherFileSystemIsRefused) {
  auto files = open_after([] { ::mkdir("workspace", 0755); });
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, Code::kInvalid) << files.error().to_string();
}

TEST_F(MemoryWorkspace, ALinkIsNotFollowed) {
  auto files = open_after([] {
    ::mkdir("elsewhere", 0755);
    ::mount("tmpfs", "elsewhere", "tmpfs", 0, nullptr);
    (void)!::symlink("elsewhere", "workspace");
  });
  EXPECT_FALSE(files.ok());
}

TEST_F(MemoryWorkspace, AnotherProcessOfThatNumberIsNotTheSandbox) {
  auto files = open_after([] {
    ::mkdir("workspace", 0755);
    ::mount("tmpfs", "workspace", "tmpfs", 0, nullptr);
  });
  ASSERT_TRUE(files.ok());
  ++record_.start_time;
  EXPECT_EQ(open_memory_workspace(record_).error().code, Code::kNotFound);
  --record_.start_time;
  end();
  EXPECT_FALSE(open_memory_workspace(record_).ok());
}

}  // namespace
}  // namespace carrel::native
