#include "backends/native/open_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/unique_fd.h"

namespace carrel::native {
namespace {

// A file, and processes that do something with it.
class OpenFilesTest : public ::testing::Test {
 protected:
  OpenFilesTest() {
    char name[] = "/tmp/carrel-open-files-XXXXXX";
    UniqueFd file(::mkstemp(name));
    path_ = name;
    EXPECT_EQ(::ftruncate(file.get(), 4096), 0);
    device_ = mapped_device();
  }
  ~OpenFilesTest() override { ::unlink(path_.c_str()); }

  // How this process's list of mappings names it.
  dev_t mapped_device() const {
    const UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0);
    std::ifstream maps("/proc/self/maps");
    std::string line;
    dev_t device = 0;
    while (std::getline(maps, line)) {
      unsigned major = 0;
      unsigned minor = 0;
      if (line.ends_with(path_) &&
          std::sscanf(line.c_str(), "%*s %*s %*s %x:%x", &major, &minor) == 2) {
        device = makedev(major, minor);
      }
    }
    ::munmap(at, 4096);
    return device;
  }

  // Asks about a process while that waits, after what it does.
  bool found(const std::function<void()>& act) const {
    int ready[2];
    EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
    const UniqueFd heard(ready[0]);
    const pid_t child = ::fork();
    if (child == 0) {
      // What the test itself has open, a log for example, is not what is asked for.
      const auto kept = static_cast<unsigned>(ready[1]);
      ::close_range(0, kept - 1, 0);
      ::close_range(kept + 1, ~0U, 0);
      act();
      (void)!::write(ready[1], "", 1);
      ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(heard.get(), &byte, 1), 1);
    const bool may = may_write_unseen(child, device_);
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    return may;
  }
  void map(int protection, int flags, int mode) const {
    const int file = ::open(path_.c_str(), mode);
    if (::mmap(nullptr, 4096, protection, flags, file, 0) == MAP_FAILED) {
      ::_exit(1);
    }
    ::close(file);
  }

  std::string path_;
  dev_t device_ = 0;
};

TEST_F(OpenFilesTest, WhoOnlyReadsWritesNothing) {
  EXPECT_FALSE(found([] {}));
  EXPECT_FALSE(found([this] { ::open(path_.c_str(), O_RDONLY); }));
  EXPECT_FALSE(found([this] { map(PROT_READ | PROT_WRITE, MAP_PRIVATE, O_RDONLY); }));
}

TEST_F(OpenFilesTest, WhoHasItOpenForWritingIsFound) {
  EXPECT_TRUE(found([this] { ::open(path_.c_str(), O_WRONLY); }));
  EXPECT_TRUE(found([this] { ::open(path_.c_str(), O_RDWR | O_APPEND); }));
}

TEST_F(OpenFilesTest, WhoSharesItIsFound) {
  EXPECT_TRUE(found([this] { map(PROT_READ | PROT_WRITE, MAP_SHARED, O_RDWR); }));
  EXPECT_TRUE(found([this] { map(PROT_READ, MAP_SHARED, O_RDWR); })) << "it can change its rights";
}

TEST_F(OpenFilesTest, OneBelowItIsFound) {
  EXPECT_TRUE(found([this] {
    int ready[2];
    (void)!::pipe(ready);
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::open(path_.c_str(), O_WRONLY);
      (void)!::write(ready[1], "", 1);
      ::pause();
    }
    char byte = 0;
    (void)!::read(ready[0], &byte, 1);
  }));
}

TEST_F(OpenFilesTest, AThreadWithDescriptorsOfItsOwnIsFound) {
  EXPECT_TRUE(found([this] {
    std::atomic<bool> open = false;
    std::thread([&] {
      ::unshare(CLONE_FILES);
      ::open(path_.c_str(), O_WRONLY);
      open = true;
      ::pause();
    }).detach();
    while (!open) {
      ::usleep(1000);
    }
  }));
}

TEST_F(OpenFilesTest, MoreThanCanBeLookedAtMayBeOne) {
  EXPECT_TRUE(found([] {
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    most.rlim_cur = most.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &most);
    const int nothing = ::open("/dev/null", O_RDONLY);
    for (int i = 0; i < 5000 && ::dup(nothing) >= 0; ++i) {
    }
  }));
}

TEST_F(OpenFilesTest, WhoIsGoneMayBeOne) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(may_write_unseen(child, device_));
}

}  // namespace
}  // namespace carrel::native
