#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernel/cgroup.h"

namespace carrel::native {

// What `carrel doctor` finds out about a host, as plain values: the probes fill them in, and
// diagnose() draws its conclusions from nothing else.

// What a sandbox is built from, in the order in which it is tried. Each is tried by doing it.
enum class Feature : unsigned {
  kClone3,
  kOpenat2,
  kCloseRange,
  kPidfd,
  kLandlock,
  kSeccomp,
  kMemfdExec,
  kUserNamespace,
  kIdMap,
  kMountNamespace,
  kPidNamespace,
  kNetworkNamespace,
  kIpcNamespace,
  kUtsNamespace,
  kCgroupNamespace,
  kLoopback,
  kCaptiveNetwork,
  kMountApi,
  kMountSetattr,
  kTmpfs,
  kBindMount,
  kOverlay,
  kProc,
  kDevpts,
  kPivotRoot,
  kInnerNamespace,
  kTimeNamespace,
  kCloneIntoCgroup,
  kCgroupKill,
};
inline constexpr std::size_t kFeatureCount = 29;

// How a trial went: 0, an errno, or one of these.
inline constexpr int kNotTried = -1;
inline constexpr int kDiedTrying = -2;  // the process that tried it was killed

struct FeatureOutcomes {
  std::array<int, kFeatureCount> values{};

  FeatureOutcomes() { values.fill(kNotTried); }
  [[nodiscard]] int of(Feature feature) const { return values[static_cast<unsigned>(feature)]; }
  void set(Feature feature, int outcome) { values[static_cast<unsigned>(feature)] = outcome; }
  [[nodiscard]] bool works(Feature feature) const { return of(feature) == 0; }
};

// The kernel's settings; absent where the kernel does not have one.
struct KernelSettings {
  std::optional<long> unprivileged_userns_clone;
  std::optional<long> apparmor_restrict_userns;
  std::optional<long> max_user_namespaces;
  std::optional<long> max_mnt_namespaces;
  std::optional<long> max_pid_namespaces;
  std::optional<long> max_net_namespaces;
  std::optional<long> max_ipc_namespaces;
  std::optional<long> max_uts_namespaces;
  std::optional<long> max_cgroup_namespaces;
  std::optional<long> memfd_noexec;
  std::optional<long> unprivileged_userfaultfd;
  std::optional<long> io_uring_disabled;
  std::optional<long> unprivileged_bpf_disabled;
  std::optional<long> ptrace_scope;
  std::optional<long> protected_symlinks;
  std::optional<long> protected_hardlinks;
  std::optional<long> protected_fifos;
  std::optional<long> protected_regular;
  std::optional<long> ksm_run;
  std::optional<long> smt_active;
  std::string core_pattern;
  std::vector<std::string> risky_modules;  // see doctor_modules.h
  bool swap_on = false;
};

enum class Container { kNone, kDocker, kPodman, kKubernetes, kOther };

// What surrounds this process.
struct Surroundings {
  std::uint32_t uid = 0;
  std::string user;    // empty: unknown
  std::string kernel;  // its release
  Container container = Container::kNone;
  bool under_seccomp = false;    // a filter was loaded before this program started
  std::string apparmor_profile;  // empty: none, or unconfined
  std::uint64_t bounding_capabilities = ~0ULL;
  std::uint64_t capabilities = 0;
  bool dumpable = true;         // not if the program's file cannot be read
  bool has_sandbox_ids = true;  // whether the ids of root's sandboxes exist in its namespace
  bool root_is_ramfs = false;   // the root file system is the kernel's initial one
  bool in_chroot = false;
  bool proc_mounted = true;
  std::vector<std::string> proc_covers;  // what is mounted over parts of /proc
  bool systemd = false;
  bool in_user_manager = false;  // runs below user@UID.service
  bool lingers = false;
  bool logind_kills = false;  // KillUserProcesses=yes
};

// How the limit of one resource was found.
struct LimitFacts {
  kernel::CgroupSource source = kernel::CgroupSource::kNone;
  std::string why_missing;
  bool disabled_in_kernel = false;  // /proc/cgroups knows it and says 0
  bool on_v1 = false;               // its controller is bound to a v1 hierarchy
  // With a limit set on a group of our own and a process in it: whether the kernel held it.
  bool held = false;
};

struct GroupFacts {
  bool tried = false;
  LimitFacts memory;
  LimitFacts cpu;
  LimitFacts pids;
  bool has_v2 = false;
  std::string why_no_v2;
  std::string error;  // the trial could not be made at all
};

// Whether this user has a control group that limits can be set in, and whose gift it is.
struct DelegationFacts {
  enum class State {
    kNotNeeded,  // root
    kOwnGroup,   // the group that the doctor was started in
    kScope,      // a scope that systemd gave when asked
    kNone,
  };
  State state = State::kNotNeeded;
  std::string why_not;  // of kNone
};

enum class KeeperState { kNotRunning, kRunning, kUnreachable };

struct StateFacts {
  std::string path;
  std::string error;  // why it cannot be used; empty: it can
  std::string hint;
  std::uint64_t free_bytes = 0;
  std::uint64_t free_files = 0;
  KeeperState keeper = KeeperState::kNotRunning;
};

// Whether root can give a workspace a file system of its own.
struct DiskFacts {
  bool tried = false;
  bool held = false;
  std::string why_missing;
  std::string hint;
};

// The complete sandbox at the end: what came of /bin/true in it.
struct SandboxFacts {
  bool ran = false;
  int exit_code = -1;
  std::int64_t duration_ms = 0;
  std::string error;  // why there was no sandbox
};

struct DoctorFacts {
  FeatureOutcomes features;
  int landlock_abi = 0;
  KernelSettings settings;
  Surroundings around;
  DelegationFacts delegation;
  GroupFacts groups;
  StateFacts state;
  DiskFacts disk;
  SandboxFacts sandbox;
  bool has_bash = false;
  bool has_python = false;
};

}  // namespace carrel::native
