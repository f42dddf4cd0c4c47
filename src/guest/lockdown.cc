#include "guest/lockdown.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest/gvisor.h"
#include "guest/runtime.h"
#include "kernel/uapi/landlock.h"

namespace carrel::guest {

namespace {

using namespace kernel::uapi;

constexpr int kCloneNewTime = 0x80;

bool load_filter(std::string_view bytes, Failure& failure) {
  struct {
    unsigned short length;
    const void* instructions;
  } program{static_cast<unsigned short>(bytes.size() / 8), bytes.data()};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
    return failure.at("load", "the system call filter", -errno);
  }
  return true;
}

bool write_id_map(const char* path, std::uint32_t inner, std::uint32_t outer) {
  Text<64> map;
  map.add_number(inner).add(" ").add_number(outer).add(" 1");
  return write_file(AT_FDCWD, path, map.view()) == 0;
}

// The workload's clocks begin at zero, so that they do not tell how long the host has been up. The
// guest itself keeps the host's. Whoever has opened the file may write it.
int open_clocks() { return openat(AT_FDCWD, "/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC); }

// gVisor's begin with its kernel, which is the sandbox's own.
protocol::Clocks gvisors_clocks() {
  constexpr time_t kJustBegun = 600;
  struct timespec monotonic{};
  struct timespec boot{};
  return clock_gettime(CLOCK_MONOTONIC, &monotonic) == 0 &&
                 clock_gettime(CLOCK_BOOTTIME, &boot) == 0 && monotonic.tv_sec < kJustBegun &&
                 boot.tv_sec < kJustBegun
             ? protocol::Clocks::kOwn
             : protocol::Clocks::kHosts;
}

bool drop_capabilities(Kernel kernel) {
  // CRITICAL: the bounding set goes first, while CAP_SETPCAP is still there; without this a set-id
  // or file-capability program could bring capabilities of this user namespace back.
  // The kernel's own last capability is followed by EINVAL; none is skipped, and 0 always exists.
  for (unsigned long capability = 0; capability <= 63; ++capability) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) {
      if (errno != EINVAL || capability == 0) {
        return false;
      }
      break;
    }
  }
  constexpr unsigned long kBits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                                  SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                                  SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  // gVisor lets nobody set the first, and older ones have no ambient set. The bounding set is
  // empty, and nobody here is root.
  if (prctl(PR_SET_SECUREBITS, kBits, 0, 0, 0) != 0 &&
      (kernel != Kernel::kGvisors || (errno != EINVAL && errno != EPERM))) {
    return false;
  }
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 &&
      (kernel != Kernel::kGvisors || errno != EINVAL)) {
    return false;
  }
  struct __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

bool limit(int resource, std::uint64_t value, Failure& failure) {
  struct rlimit asked{value, value};
  if (setrlimit(resource, &asked) == 0) {
    return true;
  }
  struct rlimit now{};
  if (getrlimit(resource, &now) != 0) {
    return failure.at("read", "a resource limit", -errno);
  }
  // An ordinary user cannot raise a hard limit; the host's own lower one stays.
  if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max) {
    value = now.rlim_max;
  }
  struct rlimit wanted{value, value};
  if (setrlimit(resource, &wanted) != 0) {
    return failure.at("set", "a resource limit", -errno);
  }
  return true;
}

// Leaves this process so many of the processors that it may use, the one that it runs on first:
// to move to another takes longer than everything else here.
bool keep_to_processors(std::uint32_t count) {
  std::uint64_t allowed[16] = {};  // 1024 processors
  long size = syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
  unsigned here = 0;
  if (size <= 0 || syscall(SYS_getcpu, &here, nullptr, nullptr) != 0) {
    return errno == EINVAL;  // a host with more of them: no mask
  }
  std::uint64_t kept[16] = {};
  const unsigned most = static_cast<unsigned>(size) * 8;
  for (unsigned i = 0; i < most && count > 0; ++i) {
    const unsigned processor = (here + i) % most;
    if ((allowed[processor / 64] >> (processor % 64) & 1) != 0) {
      kept[processor / 64] |= 1ULL << (processor % 64);
      --count;
    }
  }
  return syscall(SYS_sched_setaffinity, 0, static_cast<std::size_t>(size), kept) == 0;
}

// A file has fewer rights than a directory; the kernel refuses a rule with others.
bool allow_path(int ruleset, int path, std::uint64_t rights) {
  struct stat info{};
  if (fstat(path, &info) != 0) {
    return false;
  }
  constexpr std::uint64_t kOfFiles =
      kFsExecute | kFsWriteFile | kFsReadFile | kFsTruncate | kFsIoctlDev;
  LandlockPathBeneath rule{S_ISDIR(info.st_mode) ? rights : rights & kOfFiles, path};
  return syscall(kLandlockAddRule, ruleset, kLandlockPathBeneath, &rule, 0) == 0;
}

bool allow_path(int ruleset, const char* path, std::uint64_t rights) {
  int fd = openat(AT_FDCWD, path, O_PATH | O_CLOEXEC);
  if (fd < 0) {
    return false;
  }
  bool added = allow_path(ruleset, fd, rights);
  close(fd);
  return added;
}

}  // namespace

bool set_up_identity(const protocol::Boot& boot, Failure& failure) {
  if (sethostname(boot.hostname.data(), boot.hostname.size()) != 0) {
    return failure.at("set the hostname to", boot.hostname, -errno);
  }
  // Keyrings are per user and not per namespace: an anonymous one hides the user's own. A kernel
  // without keyrings has none to hide.
  constexpr int kJoinSessionKeyring = 1;
  if (syscall(SYS_keyctl, kJoinSessionKeyring, nullptr) < 0 && errno != ENOSYS) {
    return failure.at("leave", "the session keyring", -errno);
  }
  setsid();
  return true;
}

ClockOffsets offsets_now() {
  struct timespec monotonic{};
  struct timespec boot{};
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  ClockOffsets offsets;
  offsets.add("monotonic -").add_number(static_cast<std::uint64_t>(monotonic.tv_sec));
  offsets.add(" 0\nboottime -").add_number(static_cast<std::uint64_t>(boot.tv_sec)).add(" 0\n");
  return offsets;
}

bool begin_clocks(int unset, std::string_view offsets, Failure& failure) {
  if (unset < 0) {
    return true;
  }
  const bool written = write_whole(unset, offsets);
  const int reason = -errno;
  close(unset);
  return written || failure.at("set", "the clocks", reason);
}

namespace {

// The mapping of the user namespace that was just made, and no others below it.
bool settle_inside(const protocol::Boot& boot, const BuiltRoot& built, Failure& failure) {
  // gVisor has no such switch. Nobody has the capability that it is about.
  const int denied = write_file(AT_FDCWD, "/proc/self/setgroups", "deny");
  if ((denied != 0 && (kernel_of(boot) != Kernel::kGvisors || denied != -ENOENT)) ||
      !write_id_map("/proc/self/gid_map", boot.gid, boot.outer_gid) ||
      !write_id_map("/proc/self/uid_map", boot.uid, boot.outer_uid)) {
    return failure.at("map", "the inner user", -errno);
  }
  // CRITICAL: a user namespace is the only one that can be made without a capability, and here is
  // nobody who has one.
  // Whoever furnished the room may have made that unwritable: then the filter alone forbids them.
  if (built.proc_sys_user >= 0) {
    if (int result = write_file(built.proc_sys_user, "max_user_namespaces", "0"); result < 0) {
      return failure.at("forbid", "user namespaces", result);
    }
  }
  return true;
}

bool give_up_rights(const protocol::Boot& boot, Failure& failure) {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || !drop_capabilities(kernel_of(boot))) {
    return failure.at("drop", "the capabilities", -errno);
  }
  return load_filter(boot.guest_filter, failure);
}

}  // namespace

bool lock_in(const protocol::Boot& boot, const BuiltRoot& built, protocol::Clocks& clocks,
             Failure& failure) {
  // CRITICAL: the mounts, the network and everything else made so far belong to the user namespace
  // that is left here. No capability that somebody might get below counts for them.
  const Kernel kernel = kernel_of(boot);
  const bool own_time = kernel == Kernel::kHosts && unshare(CLONE_NEWUSER | kCloneNewTime) == 0;
  if (!own_time && unshare(CLONE_NEWUSER) != 0) {  // not every kernel has it
    return failure.at("make", "the inner user namespace", -errno);
  }
  if (own_time) {
    const int unset = open_clocks();
    if (unset < 0) {
      return failure.at("set", "the clocks", -errno);
    }
    if (!begin_clocks(unset, offsets_now().view(), failure)) {
      return false;
    }
  }
  clocks = own_time ? protocol::Clocks::kOwn : protocol::Clocks::kHosts;
  if (kernel == Kernel::kGvisors) {
    clocks = gvisors_clocks();
  }
  return settle_inside(boot, built, failure) && give_up_rights(boot, failure);
}

bool begin_lock(const protocol::Boot& boot, const BuiltRoot& built, Failure& failure) {
  // CRITICAL: as in lock_in().
  if (unshare(CLONE_NEWUSER) != 0) {
    return failure.at("make", "the inner user namespace", -errno);
  }
  return settle_inside(boot, built, failure);
}

bool end_lock(const protocol::Boot& boot, int& unset, Failure& failure) {
  unset = -1;
  if (unshare(kCloneNewTime) == 0) {
    unset = open_clocks();
    if (unset < 0) {
      return failure.at("set", "the clocks", -errno);
    }
  }
  return give_up_rights(boot, failure);
}

bool prepare_landlock(const protocol::Boot& boot, const BuiltRoot& built, int& ruleset,
                      Failure& failure) {
  ruleset = -1;
  if ((boot.flags & protocol::kBootLandlock) == 0) {
    return true;
  }
  int abi = static_cast<int>(syscall(kLandlockCreateRuleset, nullptr, 0, kLandlockQueryVersion));
  if (abi < 1) {
    return failure.at("use", "Landlock", abi < 0 ? -errno : -ENOSYS);
  }
  LandlockRuleset attributes{};
  attributes.handled_fs = landlock_fs_rights(abi);
  std::size_t size = sizeof attributes.handled_fs;
  if (abi >= 6) {
    attributes.scoped = kScopeAbstractUnixSocket | kScopeSignal;
    size = sizeof attributes;
  }
  ruleset = static_cast<int>(syscall(kLandlockCreateRuleset, &attributes, size, 0));
  if (ruleset < 0) {
    return failure.at("make", "the Landlock ruleset", -errno);
  }
  const std::uint64_t all = attributes.handled_fs;
  const std::uint64_t read = kFsExecute | kFsReadFile | kFsReadDir;
  const std::uint64_t device = (read | kFsWriteFile | kFsIoctlDev | kFsTruncate) & all;
  bool added =
      allow_path(ruleset, "/", (boot.flags & protocol::kBootWritableRoot) != 0 ? all : read) &&
      allow_path(ruleset, "/dev", device) &&
      allow_path(ruleset, "/proc", (read | kFsWriteFile | kFsTruncate) & all);
  const char* next = boot.writable.data.data();
  for (std::uint32_t i = 0; added && i < boot.writable.count; ++i) {
    added = allow_path(ruleset, next, all);
    next += std::string_view(next).size() + 1;
  }
  // The shells' private directory lives in a mount that is in no tree.
  if (added && built.tmpfs[kGuestSlot] >= 0) {
    added = allow_path(ruleset, built.tmpfs[kGuestSlot], (read | kFsWriteFile) & all);
  }
  return added || failure.at("add", "a Landlock rule", -errno);
}

bool become_workload(const protocol::Boot& boot, int ruleset, Failure& failure) {
  // The score can only be written while dumpable. Nothing of the workload runs before this
  // process, or it shares this process's limits anyway.
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  int result = write_file(AT_FDCWD, "/proc/self/oom_score_adj", "1000");
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (result < 0) {
    return failure.at("set", "the out-of-memory score", result);
  }
  // A core limit of 1, not 0: a core_pattern that is a pipe ignores 0.
  if (!limit(RLIMIT_CORE, 1, failure) || !limit(RLIMIT_NOFILE, boot.open_files, failure) ||
      !limit(RLIMIT_NPROC, boot.processes, failure) ||
      !limit(RLIMIT_FSIZE, boot.file_bytes, failure) ||
      !limit(RLIMIT_MEMLOCK, 64U << 10, failure)) {
    return false;
  }
  // gVisor lets nobody set these: what it keeps for a sandbox counts in that sandbox's groups.
  if (kernel_of(boot) == Kernel::kHosts &&
      (!limit(RLIMIT_MSGQUEUE, 800U << 10, failure) || !limit(RLIMIT_SIGPENDING, 4096, failure) ||
       !limit(RLIMIT_RTPRIO, 0, failure) || !limit(RLIMIT_NICE, 0, failure))) {
    return false;
  }
  if (boot.cpus != 0 && !keep_to_processors(boot.cpus)) {
    return failure.at("set", "the processor mask", -errno);
  }
  // Not every processor has these switches; one that lacks them has nothing to disable.
  constexpr unsigned long kForceDisable = 1UL << 3;
  prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, kForceDisable, 0, 0);
  prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH, kForceDisable, 0, 0);
  umask(022);
  if (ruleset >= 0 && syscall(kLandlockRestrictSelf, ruleset, 0) != 0) {
    return failure.at("enter", "the Landlock domain", -errno);
  }
  // A filter cannot be taken off: where the guest's own is the workload's, it is in force here.
  return boot.guest_filter == boot.workload_filter || load_filter(boot.workload_filter, failure);
}

}  // namespace carrel::guest
