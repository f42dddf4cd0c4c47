#include "storage/images/unpack_room.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "kernel/seccomp.h"
#include "kernel/uapi/landlock.h"
#include "policy/syscalls.h"

namespace carrel::storage {

namespace {

using namespace kernel::uapi;

Status limit(int resource, std::uint64_t value) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) {
    return system_error("read a limit of the unpacker");
  }
  const rlim_t wanted = now.rlim_max < value ? now.rlim_max : value;
  const rlimit both{wanted, wanted};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &both) != 0) {
    return system_error("set a limit of the unpacker");
  }
  return {};
}

// Namespaces of its own, in which it has the right to change its root. False: this host gives none.
bool enter_namespaces() {
  const std::string uid = "0 " + std::to_string(::geteuid()) + " 1";
  const std::string gid = "0 " + std::to_string(::getegid()) + " 1";
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) != 0) {
    return false;
  }
  return write_value_at(AT_FDCWD, "/proc/self/setgroups", "deny").ok() &&
         write_value_at(AT_FDCWD, "/proc/self/gid_map", gid).ok() &&
         write_value_at(AT_FDCWD, "/proc/self/uid_map", uid).ok();
}

// False: this kernel has no Landlock.
bool enter_landlock(int tree) {
  const long abi = ::syscall(kLandlockCreateRuleset, nullptr, 0, kLandlockQueryVersion);
  if (abi < 1) {
    return false;
  }
  LandlockRuleset attributes{};
  attributes.handled_fs = landlock_fs_rights(static_cast<int>(abi));
  UniqueFd ruleset(static_cast<int>(
      ::syscall(kLandlockCreateRuleset, &attributes, sizeof attributes.handled_fs, 0)));
  LandlockPathBeneath rule{attributes.handled_fs & ~kFsExecute & ~kFsIoctlDev, tree};
  return ruleset.valid() &&
         ::syscall(kLandlockAddRule, ruleset.get(), kLandlockPathBeneath, &rule, 0) == 0 &&
         ::syscall(kLandlockRestrictSelf, ruleset.get(), 0) == 0;
}

Status drop_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
      ::syscall(SYS_capset, &header, none) != 0) {
    return system_error("drop the unpacker's capabilities");
  }
  return {};
}

}  // namespace

Status enter_unpack_room(const RoomPlan& plan) {
  const kernel::SeccompProgram filter = kernel::compile(policy::unpacker_syscalls());
  ::umask(022);
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // else its id maps are root's
  const bool own_namespaces = enter_namespaces();
  // CRITICAL: the directory becomes the root while it is the only one that is open.
  const bool own_root = (own_namespaces || ::geteuid() == 0) && ::fchdir(plan.tree) == 0 &&
                        ::chroot(".") == 0 && ::chdir("/") == 0;
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return system_error("close the unpacker");
  }
  if (!enter_landlock(plan.tree) && !own_root) {
    return Error{Code::kUnsupported, 0,
                 "an image can only be unpacked where there are user namespaces or Landlock",
                 "run 'carrel doctor'"};
  }
  CARREL_TRY(drop_capabilities());
  CARREL_TRY(limit(RLIMIT_CORE, 0));
  CARREL_TRY(limit(RLIMIT_NPROC, 0));
  CARREL_TRY(limit(RLIMIT_NOFILE, 512));
  CARREL_TRY(limit(RLIMIT_FSIZE, plan.largest_file));
#ifndef CARREL_SANITIZED  // a shadow is larger than any limit
  CARREL_TRY(limit(RLIMIT_AS, plan.memory));
#endif
  if (const int reason = kernel::load_seccomp_child(filter.view()); reason != 0) {
    return system_error(reason, "load the unpacker's system call filter");
  }
  return {};
}

}  // namespace carrel::storage
