#include "backends/native/doctor.h"

#include <optional>

#include "backends/native/doctor_cause.h"
#include "backends/native/doctor_disk.h"
#include "backends/native/doctor_warnings.h"

namespace carrel::native {

namespace {

constexpr std::uint64_t kLittleSpace = 256ULL << 20;
constexpr std::uint64_t kFewFiles = 1000;

Check not_tried(const char* name) {
  return Check{
      name, CheckStatus::kMissing, "not tried, because something else is missing", {}, false};
}

struct FeatureText {
  const char* name;
  const char* meaning;  // when it works
};

FeatureText text_of(Feature feature) {
  switch (feature) {
    case Feature::kClone3:
      return {"clone3", "processes are started with a descriptor of their own"};
    case Feature::kOpenat2:
      return {"openat2", "paths are opened without leaving a directory"};
    case Feature::kCloseRange:
      return {"close_range", "no descriptor slips into a sandbox"};
    case Feature::kPidfd:
      return {"pidfd", "a long-lived sandbox is never mistaken for another process"};
    case Feature::kLandlock:
      return {"landlock", "a second opinion on every path"};
    case Feature::kSeccomp:
      return {"seccomp", "system calls are filtered"};
    case Feature::kMemfdExec:
      return {"memfd_exec", "the guest runs from a sealed memory file"};
    case Feature::kUserNamespace:
      return {"user_namespace", "capabilities end at the sandbox"};
    case Feature::kIdMap:
      return {"id_map", "the sandbox's users are mapped"};
    case Feature::kMountNamespace:
      return {"mount_namespace", "files of its own"};
    case Feature::kPidNamespace:
      return {"pid_namespace", "processes of its own"};
    case Feature::kNetworkNamespace:
      return {"network_namespace", "a network of its own"};
    case Feature::kIpcNamespace:
      return {"ipc_namespace", "shared memory of its own"};
    case Feature::kUtsNamespace:
      return {"uts_namespace", "a hostname of its own"};
    case Feature::kCgroupNamespace:
      return {"cgroup_namespace", "control groups of its own"};
    case Feature::kLoopback:
      return {"loopback", "127.0.0.1 inside"};
    case Feature::kCaptiveNetwork:
      return {"captive_network", "what leaves is decided on outside (--network): nftables"};
    case Feature::kMountApi:
      return {"mount_api", "mounts are built detached: fsopen, open_tree, move_mount"};
    case Feature::kMountSetattr:
      return {"mount_setattr", "mounts are protected before they are seen"};
    case Feature::kTmpfs:
      return {"tmpfs", "files in memory, with a size"};
    case Feature::kBindMount:
      return {"bind_mount", "the host's programs, read-only"};
    case Feature::kOverlay:
      return {"overlay", "writable roots (--writable-root, --image dir:)"};
    case Feature::kProc:
      return {"proc", "a /proc that shows the sandbox alone"};
    case Feature::kDevpts:
      return {"devpts", "terminals of its own"};
    case Feature::kPivotRoot:
      return {"pivot_root", "the host's tree is out of reach"};
    case Feature::kInnerNamespace:
      return {"inner_namespace", "no capability inside counts for what was made outside"};
    case Feature::kTimeNamespace:
      return {"time_namespace", "clocks of its own"};
    case Feature::kCloneIntoCgroup:
      return {"clone_into_cgroup", "limits hold from the first instruction"};
    case Feature::kCgroupKill:
      return {"cgroup_kill", "a sandbox ends as a whole"};
  }
  return {"unknown", ""};
}

// What sandboxes are without it, where they are at all.
const char* instead_of(Feature feature) {
  switch (feature) {
    case Feature::kClone3:
      return "; clone is used instead";
    case Feature::kOpenat2:
      return "; paths are opened name by name instead";
    case Feature::kCloseRange:
      return "; descriptors are closed one by one instead";
    case Feature::kPidfd:
      return "; there are no long-lived sandboxes";
    case Feature::kMountSetattr:
      return "; mounts are protected by remounting them instead";
    case Feature::kTimeNamespace:
      return "; the host's uptime can be read in a sandbox";
    case Feature::kCaptiveNetwork:
      return "; a sandbox can have no network but none";
    case Feature::kCloneIntoCgroup:
      return "; the first process is moved into its group before it runs anything";
    case Feature::kLandlock:
    case Feature::kOverlay:
    case Feature::kCgroupKill:
      return "";
    default:
      return nullptr;
  }
}

// Whether sandboxes do without it, with something else, something weaker or fewer options.
bool has_substitute(Feature feature) { return instead_of(feature) != nullptr; }

bool needs_v2(Feature feature) {
  return feature == Feature::kCloneIntoCgroup || feature == Feature::kCgroupKill;
}

Check check_feature(Feature feature, const DoctorFacts& facts) {
  const FeatureText text = text_of(feature);
  if (facts.features.works(feature)) {
    std::string detail = text.meaning;
    if (feature == Feature::kLandlock) {
      detail += " (abi " + std::to_string(facts.landlock_abi) + ")";
    }
    return Check{text.name, CheckStatus::kOk, detail, {}};
  }
  if (needs_v2(feature) && facts.groups.tried && !facts.groups.has_v2) {
    return Check{text.name, CheckStatus::kMissing,
                 "no cgroup v2 tree to use: " + facts.groups.why_no_v2 +
                     "; a sandbox ends with its first process",
                 cause_of(Limit::kMemory, facts).fix};
  }
  if (facts.features.of(feature) == kNotTried) {
    return not_tried(text.name);
  }
  Cause cause = cause_of(feature, facts);
  if (has_substitute(feature)) {
    cause.why += instead_of(feature);
  }
  return Check{text.name, CheckStatus::kMissing, std::move(cause.why), std::move(cause.fix)};
}

Check check_limit(Limit limit, const LimitFacts& found, const DoctorFacts& facts) {
  const char* name = limit == Limit::kMemory ? "memory" : limit == Limit::kCpu ? "cpu" : "pids";
  if (found.source != kernel::CgroupSource::kNone && found.held) {
    return Check{name,
                 CheckStatus::kOk,
                 std::string("held by cgroup ") +
                     (found.source == kernel::CgroupSource::kCgroupV2 ? "v2" : "v1"),
                 {}};
  }
  if (!facts.groups.tried) {
    return not_tried(name);
  }
  const char* instead = limit == Limit::kMemory ? "; a watchdog stands in"
                        : limit == Limit::kCpu  ? "; the number of processors stands in"
                                                : "; RLIMIT_NPROC stands in";
  Cause cause = cause_of(limit, facts);
  return Check{name, CheckStatus::kMissing, cause.why + instead, std::move(cause.fix)};
}

Check check_delegation(const DoctorFacts& facts) {
  using State = DelegationFacts::State;
  constexpr char kName[] = "delegation";
  switch (facts.delegation.state) {
    case State::kNotNeeded:
      return Check{kName, CheckStatus::kOk, "not needed: root makes its own control groups", {}};
    case State::kOwnGroup:
      return Check{kName, CheckStatus::kOk, "yes: the control group that this runs in", {}};
    case State::kScope:
      return Check{kName,
                   CheckStatus::kOk,
                   "yes: systemd gives a scope to long-lived sandboxes, and to one-shots that "
                   "--require a limit",
                   {}};
    case State::kNone:
      break;
  }
  return Check{kName, CheckStatus::kMissing, "no: " + facts.delegation.why_not,
               cause_of(Limit::kMemory, facts).fix};
}

std::string mebibytes(std::uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

void add_state(const StateFacts& state, std::vector<Check>& checks) {
  if (!state.error.empty()) {
    checks.push_back({"state_directory", CheckStatus::kMissing, state.error, state.hint});
    return;
  }
  checks.push_back({"state_directory", CheckStatus::kOk, state.path, {}});
  const bool little = state.free_bytes < kLittleSpace || state.free_files < kFewFiles;
  checks.push_back({"disk_space", little ? CheckStatus::kWarning : CheckStatus::kOk,
                    state.free_files < kFewFiles
                        ? "only " + std::to_string(state.free_files) + " files can be made there"
                        : mebibytes(state.free_bytes) + " free",
                    little ? "make room in '" + state.path + "', or set CARREL_HOME" : ""});
  switch (state.keeper) {
    case KeeperState::kNotRunning:
      checks.push_back({"keeper", CheckStatus::kOk, "not running; 'carrel create' starts it", {}});
      break;
    case KeeperState::kRunning:
      checks.push_back({"keeper", CheckStatus::kOk, "running", {}});
      break;
    case KeeperState::kUnreachable:
      checks.push_back({"keeper", CheckStatus::kWarning,
                        "its socket is there and does not let us in: 'carrel create' will fail",
                        "remove '" + state.path + "/run/keeper'"});
      break;
  }
}

Check check_program(const char* name, bool found, const char* use) {
  if (found) {
    return Check{name, CheckStatus::kOk, std::string("in the image 'host', for ") + use, {}};
  }
  return Check{name, CheckStatus::kMissing, std::string("not in the image 'host': no ") + use,
               std::string("install ") + name};
}

Check check_sandbox(const SandboxFacts& sandbox, const std::optional<Check>& first_missing) {
  if (sandbox.ran && (sandbox.exit_code == 0 || sandbox.exit_code == 127)) {
    return Check{"sandbox",
                 CheckStatus::kOk,
                 "a complete one ran /bin/true in " + std::to_string(sandbox.duration_ms) + " ms",
                 {}};
  }
  const std::string why =
      sandbox.ran ? "/bin/true ended with " + std::to_string(sandbox.exit_code) : sandbox.error;
  return Check{"sandbox", CheckStatus::kMissing, why,
               !first_missing ? "report this as a bug of carrel" : first_missing->fix};
}

std::string list_names(const std::vector<Check>& checks, CheckStatus status) {
  std::string names;
  for (const Check& check : checks) {
    if (check.status == status) {
      names += (names.empty() ? "" : ", ") + check.name;
    }
  }
  return names;
}

std::string verdict_of(const Diagnosis& diagnosis, const std::optional<Check>& first_missing) {
  if (!diagnosis.ok) {
    const Check& cause = first_missing ? *first_missing : diagnosis.checks.back();
    return "Sandboxes do not work here. " + cause.name + ": " + cause.detail +
           (cause.fix.empty() ? "" : ". To change it: " + cause.fix);
  }
  const std::string missing = list_names(diagnosis.checks, CheckStatus::kMissing);
  const std::string warnings = list_names(diagnosis.checks, CheckStatus::kWarning);
  std::string text = "Sandboxes work here";
  if (missing.empty() && warnings.empty()) {
    return text + ", with everything in force.";
  }
  text += missing.empty() ? ", with everything in force." : "; missing: " + missing + ".";
  return warnings.empty() ? text : text + " Worth a look: " + warnings + ".";
}

}  // namespace

std::string_view status_name(CheckStatus status) {
  switch (status) {
    case CheckStatus::kOk:
      return "ok";
    case CheckStatus::kMissing:
      return "missing";
    case CheckStatus::kWarning:
      break;
  }
  return "warning";
}

std::string_view feature_name(Feature feature) { return text_of(feature).name; }

Diagnosis diagnose(const DoctorFacts& facts) {
  Diagnosis diagnosis;
  std::vector<Check>& checks = diagnosis.checks;
  std::optional<Check> first_missing;  // of what no sandbox does without
  auto note_essential = [&](const Check& check) {
    if (!first_missing && check.status == CheckStatus::kMissing && check.tried) {
      first_missing = check;
    }
  };
  for (unsigned i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    checks.push_back(check_feature(feature, facts));
    const bool dispensable = has_substitute(feature) || (needs_v2(feature) && !facts.groups.has_v2);
    // What kills the process that tries it would kill the one that makes a sandbox, too.
    if (!dispensable || facts.features.of(feature) == kDiedTrying) {
      note_essential(checks.back());
    }
  }
  checks.push_back(check_delegation(facts));
  checks.push_back(check_limit(Limit::kMemory, facts.groups.memory, facts));
  checks.push_back(check_limit(Limit::kCpu, facts.groups.cpu, facts));
  checks.push_back(check_limit(Limit::kPids, facts.groups.pids, facts));
  checks.push_back(check_disk(facts));
  const std::size_t state = checks.size();
  add_state(facts.state, checks);
  note_essential(checks[state]);
  checks.push_back(check_program("bash", facts.has_bash, "'carrel sh' and 'carrel attach'"));
  checks.push_back(check_program("python3", facts.has_python, "'carrel code' of Python"));
  for (Check& check : look_at_settings(facts)) {
    checks.push_back(std::move(check));
  }
  checks.push_back(check_sandbox(facts.sandbox, first_missing));
  diagnosis.ok = checks.back().status == CheckStatus::kOk;
  diagnosis.verdict = verdict_of(diagnosis, first_missing);
  return diagnosis;
}

}  // namespace carrel::native
