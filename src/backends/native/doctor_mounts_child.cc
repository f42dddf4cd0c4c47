#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

#include "backends/native/doctor_probe_child.h"
#include "kernel/uapi/mount.h"

namespace carrel::native {

namespace {

constexpr unsigned kProtected = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;

int reason(long answer) { return answer < 0 ? errno : 0; }

// A mount, or a negative errno. `set` is called with the open context before the file system is
// created, and answers 0 or an errno.
template <typename Set>
int make_file_system(const char* type, unsigned attributes, Set set) {
  int context = ::fsopen(type, FSOPEN_CLOEXEC);
  if (context < 0) {
    return -errno;
  }
  int failed = set(context);
  if (failed == 0) {
    failed = reason(::fsconfig(context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
  }
  int mount = failed != 0 ? -failed : ::fsmount(context, FSMOUNT_CLOEXEC, attributes);
  if (failed == 0 && mount < 0) {
    mount = -errno;
  }
  ::close(context);
  return mount;
}

int set_nothing(int) { return 0; }

int attach(int mount, int target) {
  return reason(
      ::move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}

// Makes a directory in the new root and puts the mount (or a negative errno) there.
int attach_at(int root, const char* name, int mount) {
  if (mount < 0) {
    return -mount;
  }
  if (::mkdirat(root, name, 0755) != 0) {
    return errno;
  }
  int target = ::openat(root, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int failed = target < 0 ? errno : attach(mount, target);
  ::close(mount);
  return failed;
}

int make_tree_private() {
  struct mount_attr request{};
  request.propagation = MS_PRIVATE;
  return reason(
      ::mount_setattr(AT_FDCWD, "/", kernel::uapi::kAtRecursive, &request, sizeof request));
}

int make_tree_private_plainly() {
  return reason(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
}

int open_context() {
  const int context = ::fsopen("tmpfs", FSOPEN_CLOEXEC);
  if (context < 0) {
    return errno;
  }
  return reason(::close(context));
}

// CRITICAL: attached over a directory of this process's own mount namespace, nowhere else.
int make_root(int& root) {
  root = make_file_system("tmpfs", kProtected, [](int context) {
    return reason(::fsconfig(context, FSCONFIG_SET_STRING, "size", "1m", 0));
  });
  if (root < 0) {
    return -root;
  }
  for (const char* staging : {"/sys", "/tmp", "/mnt"}) {
    int target = ::open(staging, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (target >= 0) {
      return attach(root, target);
    }
  }
  return ENOENT;
}

int bind_host_programs(int root) {
  int mount = ::open_tree(AT_FDCWD, "/usr",
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | kernel::uapi::kAtRecursive);
  if (mount < 0) {
    return errno;
  }
  struct mount_attr request{};
  request.attr_set = MOUNT_ATTR_RDONLY | kProtected;
  if (::mount_setattr(mount, "", AT_EMPTY_PATH | kernel::uapi::kAtRecursive, &request,
                      sizeof request) != 0 &&
      errno != ENOSYS) {  // a launch does it later then
    return errno;
  }
  return attach_at(root, "usr", mount);
}

int set_layer(int context, const char* key, int directory) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", directory);
  return reason(::fsconfig(context, FSCONFIG_SET_STRING, key, path, 0));
}

int make_overlay(int root) {
  if (::mkdirat(root, "upper", 0755) != 0 || ::mkdirat(root, "work", 0755) != 0) {
    return errno;
  }
  int lower = ::open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
  int upper = ::openat(root, "upper", O_PATH | O_DIRECTORY | O_CLOEXEC);
  int work = ::openat(root, "work", O_PATH | O_DIRECTORY | O_CLOEXEC);
  int mount = make_file_system("overlay", kProtected, [&](int context) {
    int failed = set_layer(context, "lowerdir", lower);
    failed = failed != 0 ? failed : set_layer(context, "upperdir", upper);
    failed = failed != 0 ? failed : set_layer(context, "workdir", work);
    return failed != 0 ? failed
                       : reason(::fsconfig(context, FSCONFIG_SET_FLAG, "userxattr", nullptr, 0));
  });
  return mount < 0 ? -mount : 0;
}

int enter(int root) {
  if (::fchdir(root) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0) {
    return errno;
  }
  return reason(::chdir("/"));
}

int write_file(const char* path, std::string_view text) {
  int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return errno;
  }
  int failed = reason(::write(fd, text.data(), text.size()));
  ::close(fd);
  return failed;
}

// The second user namespace, in which the workload runs: it locks the mounts and forbids further
// namespaces.
int lock_in() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return errno;
  }
  int failed = write_file("/proc/self/setgroups", "deny");
  failed = failed != 0 ? failed : write_file("/proc/self/gid_map", "1000 0 1");
  failed = failed != 0 ? failed : write_file("/proc/self/uid_map", "1000 0 1");
  return failed != 0 ? failed : write_file("/proc/sys/user/max_user_namespaces", "0");
}

}  // namespace

void try_mounts(TrialBoard& board) {
  auto attempt = [&](Feature feature, auto&& action) {
    board.begin(feature);
    board.finish(feature, action());
    return board.works(feature);
  };
  int root = -1;
  // CRITICAL: nothing is mounted before the tree is private.
  if ((!attempt(Feature::kMountSetattr, make_tree_private) && make_tree_private_plainly() != 0) ||
      !attempt(Feature::kMountApi, open_context) ||
      !attempt(Feature::kTmpfs, [&] { return make_root(root); })) {
    return;
  }
  attempt(Feature::kBindMount, [&] { return bind_host_programs(root); });
  attempt(Feature::kOverlay, [&] { return make_overlay(root); });
  const bool proc = attempt(Feature::kProc, [&] {
    return attach_at(root, "proc",
                     make_file_system("proc", kProtected | MOUNT_ATTR_NOEXEC, set_nothing));
  });
  attempt(Feature::kDevpts, [&] {
    return attach_at(
        root, "pts", make_file_system("devpts", MOUNT_ATTR_NOSUID, [](int context) {
          return reason(::fsconfig(context, FSCONFIG_SET_STRING, "ptmxmode", "0666", 0));
        }));
  });
  if (attempt(Feature::kPivotRoot, [&] { return enter(root); }) && proc) {
    attempt(Feature::kInnerNamespace, lock_in);
  }
}

}  // namespace carrel::native
