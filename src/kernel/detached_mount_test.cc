#include "kernel/detached_mount.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "kernel/uapi/mount.h"
#include "kernel/user_namespace.h"

namespace carrel::kernel {
namespace {

constexpr int kSkipped = 77;

// Whether `check` returns 0 in a mount namespace of its own, with a tmpfs at `/tmp`.
void in_own_namespace(const std::function<int()>& check) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "to copy mounts takes root";
  }
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) != 0) {
      ::_exit(99);
    }
    ::_exit(check());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kSkipped) {
    GTEST_SKIP() << "this kernel has no idmapped mounts of a tmpfs";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

bool attach(int mount, const char* path) {
  ::mkdir(path, 0755);
  return ::syscall(SYS_move_mount, mount, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

int open_path(const char* path) { return ::open(path, O_PATH | O_CLOEXEC); }

TEST(DetachedMount, SealedCopyIsReadOnlyToItsLowestMount) {
  in_own_namespace([] {
    ::mkdir("/tmp/source", 0755);
    ::mkdir("/tmp/source/below", 0755);
    if (::mount("tmpfs", "/tmp/source/below", "tmpfs", 0, nullptr) != 0) {
      return 1;
    }
    auto copy = copy_mounts(open_path("/tmp/source"));
    if (!copy.ok() || !seal_mounts(copy->get(), uapi::kAttrReadOnly).ok()) {
      return 2;
    }
    for (const char* name : {"file", "below/file"}) {
      if (::openat(copy->get(), name, O_CREAT | O_WRONLY, 0644) >= 0 || errno != EROFS) {
        return 3;
      }
    }
    return ::open("/tmp/source/below/file", O_CREAT | O_WRONLY, 0644) >= 0 ? 0 : 4;
  });
}

TEST(DetachedMount, NothingMountedLaterAppearsInASealedCopy) {
  in_own_namespace([] {
    ::mkdir("/tmp/source", 0755);
    if (::mount("tmpfs", "/tmp/source", "tmpfs", 0, nullptr) != 0 ||
        ::mount(nullptr, "/tmp/source", nullptr, MS_SHARED, nullptr) != 0) {
      return 1;
    }
    ::mkdir("/tmp/source/later", 0755);
    auto copy = copy_mounts(open_path("/tmp/source"));
    auto open_copy = copy_mounts(open_path("/tmp/source"));
    if (!copy.ok() || !open_copy.ok() || !seal_mounts(copy->get(), 0).ok() ||
        !attach(copy->get(), "/tmp/sealed") || !attach(open_copy->get(), "/tmp/open") ||
        ::mount("tmpfs", "/tmp/source/later", "tmpfs", 0, nullptr) != 0) {
      return 2;
    }
    ::open("/tmp/source/later/file", O_CREAT | O_WRONLY, 0644);
    struct stat info{};
    if (::stat("/tmp/sealed/later/file", &info) == 0) {
      return 3;
    }
    // One that was not sealed is still its original's peer.
    return ::stat("/tmp/open/later/file", &info) == 0 ? 0 : 4;
  });
}

TEST(DetachedMount, FilesOfTheOtherAreStoredAsTheOwners) {
  in_own_namespace([] {
    constexpr unsigned kOwner = 4321;
    constexpr unsigned kOther = 0x7000'0000;
    ::mkdir("/tmp/source", 0700);
    if (::chown("/tmp/source", kOwner, kOwner + 1) != 0) {
      return 1;
    }
    ::umask(0);
    for (const auto& [name, id] : {std::pair("/tmp/source/roots", 0U),
                                   {"/tmp/source/low", 7U},
                                   {"/tmp/source/high", 65533U}}) {
      if (::open(name, O_CREAT | O_WRONLY, 0666) < 0 || ::chown(name, id, id) != 0) {
        return 8;
      }
    }
    auto copy = copy_mounts(open_path("/tmp/source"));
    const OwnerMap map{{kOwner, kOther}, {kOwner + 1, kOther}};
    if (!copy.ok()) {
      return 2;
    }
    if (Status mapped = map_owners(copy->get(), map, Depth::kWhole); !mapped.ok()) {
      return mapped.error().code == Code::kUnsupported ? kSkipped : 3;
    }
    // Mapped owners cannot be mapped again.
    if (map_owners(copy->get(), map, Depth::kWhole).ok()) {
      return 4;
    }
    if (::setresgid(kOther, kOther, kOther) != 0 || ::setresuid(kOther, kOther, kOther) != 0) {
      return 5;
    }
    if (::openat(copy->get(), "file", O_CREAT | O_WRONLY, 0644) < 0) {
      return 6;
    }
    // Others' files are what their modes say, and not this one's.
    for (const char* name : {"roots", "low", "high"}) {
      if (::openat(copy->get(), name, O_WRONLY) < 0 ||
          ::fchmodat(copy->get(), name, 0600, 0) == 0) {
        return 9;
      }
    }
    struct stat seen{};
    return ::fstatat(copy->get(), "file", &seen, 0) == 0 && seen.st_uid == kOther ? 0 : 7;
  });
}

TEST(UserNamespace, HasItsMapsAndNobodyInIt) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "to map other ids takes root";
  }
  auto made = make_user_namespace("7 4321 1", "8 4322 1");
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "its child is still there";
  const pid_t child = ::fork();
  if (child == 0) {
    bool good = ::setns(made->get(), CLONE_NEWUSER) == 0 && ::setresuid(7, 7, 7) == 0;
    ::_exit(good && ::setresuid(0, 0, 0) != 0 ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace carrel::kernel
