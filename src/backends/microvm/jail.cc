#include "backends/microvm/jail.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/files.h"
#include "kernel/rights.h"
#include "kernel/seccomp.h"
#include "kernel/uapi/mount.h"
#include "policy/syscalls.h"

namespace carrel::microvm {

namespace {

Status write_own(const char* path, const std::string& text) {
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_WRONLY));
  return write_all(file.get(), text);
}

constexpr std::uint64_t kHarmless = kernel::uapi::kAttrNoSuid | kernel::uapi::kAttrNoDev;

Status protect(int mount, std::uint64_t set) {
  kernel::uapi::MountAttributes attributes{};
  attributes.set = set;
  if (::syscall(kernel::uapi::kMountSetattr, mount, "",
                static_cast<unsigned>(AT_EMPTY_PATH) | kernel::uapi::kAtRecursive, &attributes,
                sizeof attributes) != 0) {
    return system_error("protect a mount");
  }
  return {};
}

Status make_ways(const std::string& top, const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1)) {
    if (::mkdir((top + path.substr(0, at)).c_str(), 0755) != 0 && errno != EEXIST) {
      return system_error("make directory " + path.substr(0, at));
    }
  }
  return {};
}

Status put_needed(const std::string& top, const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) {
    return {};
  }
  CARREL_TRY(make_ways(top, path));
  const std::string place = top + path;
  if (S_ISLNK(info.st_mode)) {
    std::array<char, 4096> target{};
    const ssize_t n = ::readlink(path.c_str(), target.data(), target.size() - 1);
    return n > 0 && ::symlink(target.data(), place.c_str()) == 0 ? Status()
                                                                 : system_error("link " + path);
  }
  const bool folder = S_ISDIR(info.st_mode);
  if (folder ? ::mkdir(place.c_str(), 0755) != 0 && errno != EEXIST
             : ::mknod(place.c_str(), S_IFREG | 0444, 0) != 0) {
    return system_error("make " + place);
  }
  if (S_ISCHR(info.st_mode)) {  // a device has to stay one
    return ::mount(path.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) == 0
               ? Status()
               : system_error("mount " + path);
  }
  CARREL_ASSIGN(const UniqueFd mount, copy_mount(path));
  return ::syscall(SYS_move_mount, mount.get(), "", AT_FDCWD, place.c_str(),
                   MOVE_MOUNT_F_EMPTY_PATH) == 0
             ? Status()
             : system_error("mount " + path);
}

kernel::SyscallRules rules_of(Post post) {
  switch (post) {
    case Post::kPorter:
      return policy::connects_machine_syscalls();
    case Post::kClerk:
      return policy::writes_for_machine_syscalls();
    case Post::kVmm:
      return policy::guest_syscalls();  // which lets it load its own
    case Post::kBesideMachine:
      break;
  }
  return policy::beside_machine_syscalls();
}

Status put_file(const std::string& top, const JailFile& file) {
  CARREL_ASSIGN(const UniqueFd out,
                open_at(AT_FDCWD, top + file.path, O_WRONLY | O_CREAT | O_EXCL, 0444));
  off_t at = 0;
  while (file.source >= 0) {
    constexpr std::size_t kPiece = 1U << 20;
    const ssize_t n = ::sendfile(out.get(), file.source, &at, kPiece);
    if (n == 0) {
      return {};
    }
    if (n < 0 && errno != EINTR) {
      return system_error("copy " + file.path);
    }
  }
  return {};
}

// Sockets need no room; a file in it would have a page.
Status put_writable(const std::string& place) {
  if (::mkdir(place.c_str(), 0700) != 0 ||
      ::mount("tmpfs", place.c_str(), "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "mode=0700,size=4k,nr_inodes=4") != 0) {
    return system_error("mount a tmpfs at " + place);
  }
  return {};
}

}  // namespace

Status enter_namespaces() {
  const std::string uid = std::to_string(::geteuid());
  const std::string gid = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                CLONE_NEWUTS) != 0) {
    return system_error("make namespaces for a virtual machine");
  }
  CARREL_TRY(write_own("/proc/self/setgroups", "deny"));
  CARREL_TRY(write_own("/proc/self/gid_map", std::to_string(kJailId) + " " + gid + " 1"));
  CARREL_TRY(write_own("/proc/self/uid_map", std::to_string(kJailId) + " " + uid + " 1"));
  // CRITICAL: nothing that is mounted here may appear outside.
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0
             ? Status()
             : system_error("make the mount tree private");
}

Result<UniqueFd> copy_mount(int source) {
  UniqueFd mount(static_cast<int>(
      ::syscall(SYS_open_tree, source, "",
                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | kernel::uapi::kAtRecursive)));
  if (!mount.valid()) {
    return system_error("copy a mount");
  }
  CARREL_TRY(protect(mount.get(), kHarmless | kernel::uapi::kAttrReadOnly));
  return mount;
}

Result<UniqueFd> copy_given(const std::string& path, int file) {
  CARREL_ASSIGN(const UniqueFd found, open_at(AT_FDCWD, path, O_PATH | O_NOFOLLOW));
  struct stat is{};
  struct stat was{};
  // CRITICAL: the descriptor was judged, and the path can lead elsewhere by now.
  if (::fstat(found.get(), &is) != 0 || ::fstat(file, &was) != 0 || is.st_dev != was.st_dev ||
      is.st_ino != was.st_ino) {
    return system_error(ESTALE, "mount what was checked as " + path);
  }
  UniqueFd mount(static_cast<int>(
      ::syscall(SYS_open_tree, found.get(), "",
                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | kernel::uapi::kAtRecursive)));
  if (!mount.valid()) {
    return system_error("copy the mount at " + path);
  }
  CARREL_TRY(protect(mount.get(), kHarmless));
  return mount;
}

Result<UniqueFd> clone_mount(int folder) {
  UniqueFd mount(static_cast<int>(
      ::syscall(SYS_open_tree, folder, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)));
  return mount.valid() ? Result<UniqueFd>(std::move(mount)) : system_error("copy a mount");
}

Result<UniqueFd> copy_mount(const std::string& path) {
  CARREL_ASSIGN(const UniqueFd source, open_at(AT_FDCWD, path, O_PATH | O_NOFOLLOW));
  return copy_mount(source.get());
}

Status enter_root(const std::string& stage, const std::vector<std::string>& needed,
                  const std::vector<JailFile>& files, const std::string& writable) {
  ::umask(0);
  if (::mount("tmpfs", stage.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=192m") != 0) {
    return system_error("mount a tmpfs at " + stage);
  }
  for (const std::string& path : needed) {
    CARREL_TRY(put_needed(stage, path));
  }
  for (const JailFile& file : files) {
    CARREL_TRY(put_file(stage, file));
  }
  if (!writable.empty()) {
    CARREL_TRY(put_writable(stage + writable));
  }
  if (::chdir(stage.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) {
    return system_error("move into the machine's root");
  }
  if (::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV,
              nullptr) != 0) {
    return system_error("make the machine's root read-only");
  }
  return {};
}

Status lock_in(Post post) {
  const kernel::SeccompProgram filter = kernel::compile(rules_of(post));
  CARREL_TRY(kernel::drop_rights());
  const int reason = kernel::load_seccomp_child(filter.view());
  return reason == 0 ? Status() : system_error(reason, "load the filter of system calls");
}

}  // namespace carrel::microvm
