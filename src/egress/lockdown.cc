#include "egress/lockdown.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "kernel/seccomp.h"
#include "kernel/uapi/landlock.h"
#include "policy/syscalls.h"

namespace carrel::egress {

namespace {

using namespace kernel::uapi;

bool allow(int ruleset, int tree, std::uint64_t rights) {
  const LandlockPathBeneath rule{rights, tree};
  return ::syscall(kLandlockAddRule, ruleset, kLandlockPathBeneath, &rule, 0) == 0;
}

// A kernel without Landlock has the filter alone.
Status enter_landlock(const storage::Home& home) {
  const long abi = ::syscall(kLandlockCreateRuleset, nullptr, 0, kLandlockQueryVersion);
  if (abi < 1) {
    return {};
  }
  LandlockRuleset attributes{};
  attributes.handled_fs = landlock_fs_rights(static_cast<int>(abi));
  UniqueFd ruleset(static_cast<int>(
      ::syscall(kLandlockCreateRuleset, &attributes, sizeof attributes.handled_fs, 0)));
  if (!ruleset.valid()) {
    return system_error("make the egress process's Landlock ruleset");
  }
  const std::uint64_t everything = attributes.handled_fs & ~kFsExecute & ~kFsIoctlDev;
  for (const char* own : {"run", "net"}) {
    CARREL_ASSIGN(const UniqueFd tree, open_at(home.directory(), own, O_PATH | O_DIRECTORY));
    if (!allow(ruleset.get(), tree.get(), everything)) {
      return system_error("allow the egress process its own files");
    }
  }
  CARREL_ASSIGN(const UniqueFd secrets, open_at(home.directory(), "secrets", O_PATH | O_DIRECTORY));
  if (!allow(ruleset.get(), secrets.get(), kFsReadFile | kFsReadDir)) {
    return system_error("allow the egress process the secrets");
  }
  for (const char* settings : {"/etc", "/proc", "/run", "/usr/share", "/usr/lib/ssl"}) {
    const UniqueFd tree(::open(settings, O_PATH | O_CLOEXEC));
    if (tree.valid() && !allow(ruleset.get(), tree.get(), kFsReadFile | kFsReadDir)) {
      return system_error("allow the egress process the host's settings");
    }
  }
  if (::syscall(kLandlockRestrictSelf, ruleset.get(), 0) != 0) {
    return system_error("put the egress process under Landlock");
  }
  return {};
}

}  // namespace

Status give_up_rights() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  const rlimit no_core{0, 0};
  // CRITICAL: undumpable, or another program of the user's could read its memory.
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0 ||
      ::syscall(SYS_capset, &header, none) != 0 || ::setrlimit(RLIMIT_CORE, &no_core) != 0) {
    return system_error("drop the egress process's rights");
  }
  return {};
}

Status lock_down(const storage::Home& home) {
  const kernel::SeccompProgram filter = kernel::compile(policy::egress_syscalls());
  CARREL_TRY(give_up_rights());
  CARREL_TRY(enter_landlock(home));
  if (const int reason = kernel::load_seccomp_child(filter.view()); reason != 0) {
    return system_error(reason, "load the egress process's system call filter");
  }
  return {};
}

}  // namespace carrel::egress
