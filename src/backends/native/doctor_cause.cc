#include "backends/native/doctor_cause.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

namespace carrel::native {

namespace {

constexpr unsigned kCapSetgid = 6;
constexpr unsigned kCapSetuid = 7;
constexpr unsigned kCapSetfcap = 31;

bool is_root(const Surroundings& around) { return around.uid == 0; }

bool refused(int outcome) { return outcome == EPERM || outcome == EACCES; }

std::string loosen_filter(const Surroundings& around) {
  switch (around.container) {
    case Container::kDocker:
    case Container::kPodman:
      return "start the container with --security-opt seccomp=unconfined";
    case Container::kKubernetes:
      return "set securityContext.seccompProfile.type: Unconfined in the pod";
    case Container::kOther:
      return "start the container without its system call filter";
    case Container::kNone:
      break;
  }
  return "start carrel outside of that filter (in a systemd unit: RestrictNamespaces=no and no "
         "SystemCallFilter=)";
}

std::string unmask_proc(const Surroundings& around) {
  switch (around.container) {
    case Container::kDocker:
      return "start the container with --security-opt systempaths=unconfined";
    case Container::kPodman:
      return "start the container with --security-opt unmask=ALL";
    case Container::kKubernetes:
      return "set securityContext.procMount: Unmasked in the pod";
    case Container::kOther:
    case Container::kNone:
      break;
  }
  return "start carrel where nothing is mounted over parts of /proc";
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 3; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > 3 ? text + " and " + std::to_string(names.size() - 3) + " more" : text;
}

struct NamespaceLimit {
  const char* name;
  std::optional<long> value;
};

std::optional<NamespaceLimit> namespace_limit(Feature feature, const KernelSettings& settings) {
  switch (feature) {
    case Feature::kUserNamespace:
    case Feature::kInnerNamespace:
      return NamespaceLimit{"user.max_user_namespaces", settings.max_user_namespaces};
    case Feature::kMountNamespace:
      return NamespaceLimit{"user.max_mnt_namespaces", settings.max_mnt_namespaces};
    case Feature::kPidNamespace:
      return NamespaceLimit{"user.max_pid_namespaces", settings.max_pid_namespaces};
    case Feature::kNetworkNamespace:
      return NamespaceLimit{"user.max_net_namespaces", settings.max_net_namespaces};
    case Feature::kIpcNamespace:
      return NamespaceLimit{"user.max_ipc_namespaces", settings.max_ipc_namespaces};
    case Feature::kUtsNamespace:
      return NamespaceLimit{"user.max_uts_namespaces", settings.max_uts_namespaces};
    case Feature::kCgroupNamespace:
      return NamespaceLimit{"user.max_cgroup_namespaces", settings.max_cgroup_namespaces};
    default:
      return std::nullopt;
  }
}

// The release since which every kernel has it, and the option it is built with.
const char* kernel_with(Feature feature) {
  switch (feature) {
    case Feature::kClone3:
      return "Linux 5.5 or newer";
    case Feature::kOpenat2:
      return "Linux 5.6 or newer";
    case Feature::kCloseRange:
      return "Linux 5.11 or newer";
    case Feature::kPidfd:
      return "Linux 5.3 or newer";
    case Feature::kLandlock:
      return "Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK";
    case Feature::kSeccomp:
      return "a kernel that is built with CONFIG_SECCOMP_FILTER";
    case Feature::kMountApi:
    case Feature::kTmpfs:
    case Feature::kBindMount:
      return "Linux 5.2 or newer";
    case Feature::kMountSetattr:
      return "Linux 5.12 or newer";
    case Feature::kTimeNamespace:
      return "Linux 5.6 or newer, built with CONFIG_TIME_NS";
    case Feature::kCaptiveNetwork:
      return "a kernel with nftables and its modules nf_nat, nft_redir and nft_reject_inet";
    case Feature::kOverlay:
      return "Linux 5.11 or newer, built with CONFIG_OVERLAY_FS";
    case Feature::kCloneIntoCgroup:
      return "Linux 5.7 or newer";
    case Feature::kCgroupKill:
      return "Linux 5.14 or newer";
    case Feature::kUserNamespace:
    case Feature::kInnerNamespace:
      return "a kernel that is built with CONFIG_USER_NS";
    default:
      return "a kernel that is built with all namespaces";
  }
}

bool lacks(const Surroundings& around, unsigned capability) {
  return (around.capabilities >> capability & 1) == 0;
}

std::optional<Cause> id_map_cause(const Surroundings& around) {
  if (!is_root(around)) {
    return std::nullopt;
  }
  for (auto [number, name] : {std::pair{kCapSetuid, "CAP_SETUID"}, {kCapSetgid, "CAP_SETGID"}}) {
    if (lacks(around, number)) {
      return Cause{std::string("root does not have ") + name +
                       " here, so it cannot give a sandbox "
                       "an id of its own",
                   std::string("give it ") + name + ", or run carrel as an ordinary user"};
    }
  }
  if (!around.has_sandbox_ids) {
    return Cause{
        "this root is the root of a user namespace that does not have the ids which "
        "root's sandboxes use",
        "run carrel as an ordinary user of this container"};
  }
  if ((around.bounding_capabilities >> kCapSetfcap & 1) == 0) {
    return Cause{"root does not have CAP_SETFCAP in its bounding set, which mapping user 0 needs",
                 around.container == Container::kNone
                     ? "add CAP_SETFCAP to the bounding set (in a systemd unit: "
                       "CapabilityBoundingSet=)"
                     : "start the container with --cap-add SETFCAP"};
  }
  return std::nullopt;
}

// What belongs to one feature alone.
std::optional<Cause> own_cause(Feature feature, int outcome, const DoctorFacts& facts) {
  const Surroundings& around = facts.around;
  switch (feature) {
    case Feature::kUserNamespace:
      if (refused(outcome) && around.in_chroot) {
        return Cause{"this process is in a chroot, where the kernel makes no user namespaces",
                     "start carrel outside of the chroot"};
      }
      break;
    case Feature::kIdMap:
      if (outcome == EACCES && !around.dumpable) {
        return Cause{
            "this process may not be looked at, its own files in /proc included, because "
            "you cannot read the program's file",
            "chmod a+r the carrel program"};
      }
      return outcome == EPERM ? id_map_cause(around) : std::nullopt;
    case Feature::kProc:
      if (outcome == EPERM && !around.proc_mounted) {
        return Cause{
            "there is no complete /proc here, so the kernel allows no new one (\"Mount "
            "too revealing\")",
            "mount proc at /proc before carrel starts"};
      }
      if (outcome == EPERM && !around.proc_covers.empty()) {
        return Cause{"parts of /proc are masked (" + join(around.proc_covers) +
                         "), so the kernel allows no new one (\"Mount too revealing\")",
                     unmask_proc(around)};
      }
      break;
    case Feature::kPivotRoot:
      if (outcome == EINVAL && around.root_is_ramfs) {
        return Cause{"the root file system is the initial ramfs, which cannot be exchanged",
                     "boot with a root file system of its own (switch_root to a tmpfs is enough)"};
      }
      if (outcome == EINVAL && around.in_chroot) {
        return Cause{"the root of this process is not a mount point: it is in a chroot",
                     "start carrel outside of the chroot"};
      }
      break;
    case Feature::kMemfdExec:
      if (outcome == EACCES && facts.settings.memfd_noexec.value_or(0) == 2) {
        return Cause{"vm.memfd_noexec is 2: programs in memory files cannot be executed",
                     sysctl_fix(around, "vm.memfd_noexec=1")};
      }
      break;
    case Feature::kLandlock:
      if (outcome == EOPNOTSUPP) {
        return Cause{"Landlock is built into this kernel and was not switched on at boot",
                     "add landlock to the list in the kernel's lsm= parameter"};
      }
      break;
    case Feature::kOverlay:
      if (outcome == ENODEV) {
        return Cause{"the overlay file system is not loaded", "sudo modprobe overlay"};
      }
      break;
    case Feature::kCgroupKill:
      if (outcome == ENOENT) {
        return Cause{
            "this kernel has no cgroup.kill; sandboxes are frozen and killed one process "
            "at a time",
            std::string("use ") + kernel_with(feature)};
      }
      break;
    default:
      break;
  }
  return std::nullopt;
}

// What may refuse anything that needs a capability in a namespace of one's own.
std::optional<Cause> refusal_cause(Feature feature, const DoctorFacts& facts) {
  const Surroundings& around = facts.around;
  if (feature == Feature::kUserNamespace && !is_root(around) &&
      facts.settings.unprivileged_userns_clone.value_or(1) == 0) {
    return Cause{"kernel.unprivileged_userns_clone is 0: only root may make user namespaces",
                 sysctl_fix(around, "kernel.unprivileged_userns_clone=1")};
  }
  if (!is_root(around) && facts.settings.apparmor_restrict_userns.value_or(0) != 0) {
    return Cause{
        "kernel.apparmor_restrict_unprivileged_userns is 1: AppArmor takes every "
        "capability away in an ordinary user's namespaces",
        sysctl_fix(around, "kernel.apparmor_restrict_unprivileged_userns=0")};
  }
  if (around.under_seccomp) {
    return Cause{"this process runs under a system call filter that refuses it",
                 loosen_filter(around)};
  }
  if (!around.apparmor_profile.empty()) {
    return Cause{"the AppArmor profile '" + around.apparmor_profile + "' refuses it",
                 around.container == Container::kNone
                     ? "allow it in that profile"
                     : "start the container with --security-opt apparmor=unconfined"};
  }
  return std::nullopt;
}

}  // namespace

std::string sysctl_fix(const Surroundings& around, const std::string& setting) {
  const bool contained = around.container != Container::kNone;
  return std::string(contained ? "on the container's host: " : "") +
         (is_root(around) && !contained ? "" : "sudo ") + "sysctl -w " + setting;
}

Cause cause_of(Feature feature, const DoctorFacts& facts) {
  const int outcome = facts.features.of(feature);
  const Surroundings& around = facts.around;
  if (outcome == kDiedTrying) {
    return Cause{
        "the process that tried it was killed: a system call filter around this program "
        "forbids it",
        loosen_filter(around)};
  }
  if (std::optional<Cause> cause = own_cause(feature, outcome, facts)) {
    return *cause;
  }
  const std::optional<NamespaceLimit> limit = namespace_limit(feature, facts.settings);
  if (limit && (limit->value == 0 || outcome == ENOSPC || outcome == EUSERS)) {
    const std::string name = limit->name;
    const long enough = std::max(16384L, limit->value.value_or(0) * 2);
    return Cause{limit->value == 0 ? name + " is 0" : "the limit " + name + " is reached",
                 sysctl_fix(around, name + "=" + std::to_string(enough))};
  }
  if (refused(outcome)) {
    if (std::optional<Cause> cause = refusal_cause(feature, facts)) {
      return *cause;
    }
    return Cause{std::string("the kernel refuses it (") + std::strerror(outcome) + ")",
                 "look in the kernel's log for what denied it: sudo dmesg"};
  }
  if (outcome == ENOSYS && around.under_seccomp) {
    return Cause{"this process runs under a system call filter that hides it",
                 loosen_filter(around)};
  }
  if (outcome == ENOSYS || outcome == EINVAL || outcome == ENODEV || outcome == E2BIG) {
    return Cause{
        "this kernel (" + around.kernel + ") does not have it (" + std::strerror(outcome) + ")",
        std::string("use ") + kernel_with(feature)};
  }
  return Cause{std::strerror(outcome), "look in the kernel's log for the reason: sudo dmesg"};
}

Cause cause_of(Limit limit, const DoctorFacts& facts) {
  const Surroundings& around = facts.around;
  const GroupFacts& groups = facts.groups;
  const LimitFacts& found = limit == Limit::kMemory ? groups.memory
                            : limit == Limit::kCpu  ? groups.cpu
                                                    : groups.pids;
  const std::string name = limit == Limit::kMemory ? "memory"
                           : limit == Limit::kCpu  ? "cpu"
                                                   : "pids";
  if (!groups.error.empty()) {
    return Cause{groups.error, "make the control groups of carrel usable, or remove them"};
  }
  if (found.source != kernel::CgroupSource::kNone) {
    return Cause{"the limit was set and the kernel did not hold it",
                 "update the kernel: this one (" + around.kernel + ") is broken there"};
  }
  Cause cause{found.why_missing, {}};
  if (found.disabled_in_kernel) {
    cause.why = "the " + name + " controller is switched off in this kernel";
    cause.fix = "boot with cgroup_enable=" + name + " on the kernel's command line";
  } else if (is_root(around)) {
    cause.fix = around.container == Container::kNone
                    ? "mount -t cgroup2 cgroup2 /sys/fs/cgroup"
                    : "start the container with a writable /sys/fs/cgroup";
  } else if (around.container != Container::kNone) {
    cause.fix = "run carrel as the container's root, with a writable /sys/fs/cgroup";
  } else if (!around.systemd) {
    cause.fix = "have root make a control group for you, and name it with --cgroup-parent";
  } else if (found.on_v1) {
    cause.fix = "boot with systemd.unified_cgroup_hierarchy=1 on the kernel's command line";
  } else if (facts.delegation.state == DelegationFacts::State::kNone) {
    // Somebody who lingers has a service manager of his own from now on, and at every boot.
    cause.fix = "sudo loginctl enable-linger " +
                (around.user.empty() ? std::to_string(around.uid) : around.user);
  } else {
    cause.fix = "sudo systemctl edit user@" + std::to_string(around.uid) +
                ".service, add \"[Service]\" and \"Delegate=cpu memory pids\", and log in again";
  }
  return cause;
}

}  // namespace carrel::native
