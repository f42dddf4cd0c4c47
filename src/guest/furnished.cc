#include "guest/furnished.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/maker.h"
#include "guest/mount_table.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::MountStep;
using protocol::StepKind;

bool has(const MountStep& step, protocol::StepFlags flag) { return (step.flags & flag) != 0; }

// Whether the file has this content and no more.
bool has_content(const char* path, std::string_view content) {
  int fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    return false;
  }
  char buffer[4096];
  ssize_t n;
  std::size_t at = 0;
  bool same = true;
  while (same && (n = read(fd, buffer, sizeof buffer)) > 0) {
    std::string_view piece(buffer, static_cast<std::size_t>(n));
    same = part(content, at, piece.size()) == piece;
    at += piece.size();
  }
  close(fd);
  return same && n == 0 && at == content.size();
}

// Whether nothing can be seen there. What nobody can open is hidden as well.
bool is_hidden(const char* path) {
  int fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return errno == ENOENT || errno == EACCES || errno == EPERM;
  }
  struct stat info{};
  alignas(8) char buffer[512];
  bool hidden = false;
  if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
    // "." and ".." are 24 bytes each.
    constexpr long kEmpty = 48;
    hidden = syscall(SYS_getdents64, fd, buffer, sizeof buffer) <= kEmpty;
  } else {
    hidden = read(fd, buffer, sizeof buffer) == 0;
  }
  close(fd);
  return hidden;
}

bool is_on(const char* path, long type) {
  struct statfs info{};
  return statfs(path, &info) == 0 && static_cast<long>(info.f_type) == type;
}

// Follows a plan without doing anything.
class RoomCheck {
 public:
  RoomCheck(Kernel kernel, std::span<int> trees, BuiltRoot& built, Failure& failure)
      : kernel_(kernel), trees_(trees), built_(built), failure_(failure) {}

  bool follow(std::string_view plan) {
    protocol::PlanReader steps(plan);
    MountStep step;
    while (steps.next(step)) {
      path_ = {};
      path_.add("/").add(step.path);
      if (!is_so(step)) {
        return differs(step);
      }
    }
    return steps.ok() || failure_.at("read the mount plan", "", -EBADMSG);
  }

 private:
  bool differs(const MountStep& step) {
    const char* what = "rely on these walls: not as it was asked for is";
    switch (step.kind) {
      case StepKind::kBind:
      case StepKind::kTree:
      case StepKind::kReadOnly:
      case StepKind::kSealRoot:
        what = "rely on these walls: not protected, or not what was asked for, is";
        break;
      case StepKind::kMask:
      case StepKind::kReplace:
        what = "rely on these walls: not hidden is";
        break;
      default:
        break;
    }
    return failure_.at(what, step.path.empty() ? std::string_view("/") : step.path, 0);
  }

  bool is_so(const MountStep& step) {
    const char* path = path_.c_str();
    struct stat info{};
    switch (step.kind) {
      case StepKind::kDirectory:
        return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
      case StepKind::kMountPoint:
        return lstat(path, &info) == 0;
      case StepKind::kLink:
        return is_link(step.source) || is_engines_link(step);
      case StepKind::kFile:
        // One of them is covered in the end.
        return lstat(path, &info) == 0 && S_ISREG(info.st_mode);
      case StepKind::kTmpfs:
        sizes_[step.slot] = step.size;
        return true;
      case StepKind::kAttach:
        return keep_tmpfs(step);
      case StepKind::kBind:
        return lstat(path, &info) != 0 ? has(step, protocol::kStepOptional)
                                       : is_protected(path, ST_RDONLY | ST_NOSUID | ST_NODEV);
      case StepKind::kDevice:
        return stat(path, &info) == 0 && S_ISCHR(info.st_mode) &&
               info.st_rdev == static_cast<dev_t>(step.size);
      case StepKind::kProc:
        path_.add("/self");
        return is_on(path, PROC_SUPER_MAGIC) && is_link("1");
      case StepKind::kDevpts:
        return is_on(path, DEVPTS_SUPER_MAGIC);
      case StepKind::kMask:
        return is_hidden(path) || is_of_gvisors_proc(step);
      case StepKind::kReplace:
        // Not everybody can replace everything; what cannot be read tells nothing either.
        // In gVisor's proc/sys nothing can be.
        return has_content(path, step.source) || is_hidden(path) ||
               (is_of_gvisors_proc(step) && step.path.starts_with("proc/sys/"));
      case StepKind::kReadOnly:
        return is_of_gvisors_proc(step) || is_protected(path, ST_RDONLY);
      case StepKind::kSealRoot:
        return is_protected("/", ST_RDONLY) &&
               (kernel_ == Kernel::kGvisors ? is_given_up("/dev")
                                            : is_protected("/dev", ST_RDONLY));
      case StepKind::kTree:
        return is_tree(step);
      case StepKind::kSubdirectory:
        return true;
      case StepKind::kOverlay:
        return is_on(path, OVERLAYFS_SUPER_MAGIC) && is_protected(path, ST_NOSUID | ST_NODEV);
    }
    return false;
  }

  // gVisor's proc cannot be covered everywhere, and has nothing of the host: its files and switches
  // are about its own kernel.
  [[nodiscard]] bool is_of_gvisors_proc(const MountStep& step) const {
    return kernel_ == Kernel::kGvisors && step.path.starts_with("proc/");
  }

  // gVisor tells only of some flags, and only in its table of mounts. Its kernel gives no set-id
  // program more rights under no_new_privs, and has no device of the host's.
  [[nodiscard]] bool is_protected(const char* path, unsigned long flags) const {
    if (kernel_ == Kernel::kGvisors) {
      return (flags & ST_RDONLY) == 0 || mounted_at(path) == MountedAs::kReadOnly;
    }
    struct statvfs info{};
    return statvfs(path, &info) == 0 && (info.f_flag & flags) == flags;
  }

  // An engine puts one of its own there, which says the same.
  bool is_engines_link(const MountStep& step) {
    return kernel_ == Kernel::kGvisors && step.path == "etc/mtab" && is_link("/proc/mounts");
  }

  bool is_link(std::string_view target) {
    char buffer[4096];
    ssize_t n = readlink(path_.c_str(), buffer, sizeof buffer);
    return n >= 0 && std::string_view(buffer, static_cast<std::size_t>(n)) == target;
  }

  // They are also where its use of memory is measured.
  bool keep_tmpfs(const MountStep& step) {
    struct statfs info{};
    const char* path = path_.c_str();
    const unsigned long flags =
        ST_NOSUID | ST_NODEV |
        (has(step, protocol::kStepNoExec) ? static_cast<unsigned long>(ST_NOEXEC) : 0UL);
    if (statfs(path, &info) != 0 || static_cast<long>(info.f_type) != TMPFS_MAGIC ||
        info.f_blocks == 0 || !is_protected(path, flags)) {
      return false;
    }
    const std::uint64_t page = static_cast<std::uint64_t>(info.f_bsize);
    if (info.f_blocks > (sizes_[step.slot] + page - 1) / page) {
      return false;
    }
    int fd = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int& slot = built_.tmpfs[step.slot];
    struct stat known{};
    struct stat here{};
    if (slot < 0) {
      slot = fd;
    } else if (fstat(slot, &known) == 0 && fstat(fd, &here) == 0 && known.st_dev == here.st_dev) {
      close(fd);  // two places of one: it counts once
    } else if (further_ < built_.further.size()) {
      built_.further[further_++] = fd;
    } else {
      return false;
    }
    return fd >= 0;
  }

  // CRITICAL: the file that was judged is the one that is here, and no link of the image led to
  // another place.
  bool is_tree(const MountStep& step) {
    struct stat meant{};
    struct stat here{};
    const unsigned long flags =
        ST_NOSUID | ST_NODEV |
        (has(step, protocol::kStepReadOnly) ? static_cast<unsigned long>(ST_RDONLY) : 0UL);
    int root = openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = root < 0 ? -1 : open_beneath(root, path_.c_str() + 1, O_PATH | O_CLOEXEC);
    bool same = fd >= 0 && is_protected(path_.c_str(), flags);
    if (kernel_ == Kernel::kGvisors) {
      // No file of the host's is known here by its number. Whoever had it mounted compared it.
      same = same && mounted_at(path_.c_str()) != MountedAs::kNothing;
    } else {
      same = same && step.slot < trees_.size() && fstat(trees_[step.slot], &meant) == 0 &&
             fstat(fd, &here) == 0 && meant.st_dev == here.st_dev && meant.st_ino == here.st_ino;
    }
    for (int opened : {root, fd}) {
      if (opened >= 0) {
        close(opened);
      }
    }
    return same;
  }

  Kernel kernel_;
  std::span<int> trees_;
  BuiltRoot& built_;
  Failure& failure_;
  Path path_;
  std::uint64_t sizes_[protocol::kMaxTmpfs] = {};
  std::size_t further_ = 0;
};

// The user namespace is the only one that can be made without a capability.
bool can_make_user_namespace() {
  pid_t child = fork();
  if (child == 0) {
    _exit(unshare(CLONE_NEWUSER) == 0 ? 1 : 0);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status != 0;
}

}  // namespace

bool has_only_loopback() {
  char text[4096];
  int fd = openat(AT_FDCWD, "/proc/net/dev", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
  if (fd >= 0) {
    close(fd);
  }
  if (n <= 0) {
    return false;
  }
  std::string_view rest(text, static_cast<std::size_t>(n));
  for (unsigned line = 0; !rest.empty(); ++line) {
    const std::size_t end = rest.find('\n');
    std::string_view row = part(rest, 0, end);
    rest = end == std::string_view::npos ? std::string_view() : part(rest, end + 1);
    const std::size_t first = row.find_first_not_of(' ');
    constexpr unsigned kHeadings = 2;
    if (line >= kHeadings && !part(row, first).starts_with("lo:")) {
      return false;
    }
  }
  return true;
}

bool has_only(std::uint64_t capabilities) {
  struct __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, sets) != 0) {
    return false;
  }
  for (const auto& set : sets) {
    const std::uint32_t allowed = static_cast<std::uint32_t>(capabilities);
    if (((set.effective | set.permitted | set.inheritable) & ~allowed) != 0) {
      return false;
    }
    capabilities >>= 32U;
  }
  return true;
}

bool drop_inheritance(Failure& failure) {
  int null = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
  bool dropped = null >= 0;
  for (int stream = 0; stream < kControl; ++stream) {
    dropped = dropped && dup2(null, stream) == stream;
  }
  return (dropped && close_from(kControl + 1) >= 0) ||
         failure.at("close", "what it was started with", -errno);
}

bool check_room(const protocol::Plan& plan, Kernel kernel, std::span<int> trees, BuiltRoot& built,
                Failure& failure) {
  RoomCheck check(kernel, trees, built, failure);
  const bool is_so =
      check.follow(plan.shared) && check.follow(plan.alike) && check.follow(plan.own);
  for (int tree : trees) {
    close(tree);
  }
  return is_so;
}

bool check_identity(const protocol::Boot& boot, Failure& failure) {
  struct utsname names{};
  if (uname(&names) != 0 || boot.hostname != names.nodename) {
    return failure.at("rely on these walls: the hostname is not", boot.hostname, 0);
  }
  if (!has_only_loopback()) {
    return failure.at("rely on these walls: there is", "a network", 0);
  }
  // Nobody under the filter can use a keyring anyway.
  constexpr int kJoinSessionKeyring = 1;
  syscall(SYS_keyctl, kJoinSessionKeyring, nullptr);
  setsid();
  return true;
}

bool check_privileges(const protocol::Boot& boot, Failure& failure) {
  // Whoever is root in the room's user namespace can be made another only with this one.
  const bool locks = (boot.flags & protocol::kBootLocksIn) != 0;
  const std::uint64_t devices = kernel_of(boot) == Kernel::kGvisors ? 1ULL << CAP_CHOWN : 0;
  const std::uint64_t allowed = locks ? (1ULL << CAP_SETFCAP) | devices : 0;
  if (getpid() != 1) {
    return failure.at("rely on these walls: it shares", "a PID namespace", 0);
  }
  if (!has_only(allowed) || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) {
    return failure.at("rely on these walls: there are", "privileges", 0);
  }
  return true;
}

bool check_lock(const protocol::Boot& boot, Failure& failure) {
  constexpr int kFiltered = 2;
  if (getuid() != boot.uid || geteuid() != boot.uid || getgid() != boot.gid) {
    return failure.at("rely on these walls: it has another user than", "the sandbox's", 0);
  }
  if (!has_only(0)) {
    return failure.at("rely on these walls: there are", "privileges", 0);
  }
  if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != kFiltered) {
    return failure.at("rely on these walls: there is no", "filter of system calls", 0);
  }
  if (can_make_user_namespace()) {
    return failure.at("rely on these walls: it can make", "user namespaces", 0);
  }
  return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 || failure.at("become", "undumpable", -errno);
}

}  // namespace carrel::guest
