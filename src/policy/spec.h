#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policy/backend.h"
#include "policy/network.h"
#include "policy/service.h"

namespace carrel::policy {

// What a sandbox may use. Every limit is always on; zero is never "unlimited".
struct Limits {
  std::uint64_t memory_bytes = 512ULL << 20;
  std::uint32_t cpu_millis = 1000;  // thousandths of one core
  std::uint32_t pids = 512;
  std::uint64_t disk_bytes = 1ULL << 30;   // /workspace and HOME together
  std::uint64_t tmp_bytes = 100ULL << 20;  // /tmp and /dev/shm together
  std::uint32_t open_files = 4096;
  std::chrono::milliseconds timeout{60'000};
};

enum class RootMode {
  kReadOnly,
  kThrowawayOverlay,  // --writable-root: changes are kept in memory and dropped with the sandbox
};

// A protection that `--require` can name. What cannot be given and was required means no sandbox.
enum class Protection { kMemory, kCpu, kPids, kDisk, kLandlock };

struct EnvironmentVariable {
  std::string name;
  std::string value;
};

// Whether others may have the same workspace at the same time, if they say so as well.
enum class WorkspaceUse { kAlone, kShared };

// What becomes of a long-lived sandbox that nobody has used for a while. One that is put to rest
// wakes when somebody uses it again.
enum class OnIdle { kNothing, kPause, kStop, kRemove };

// What becomes of one that dies: whose first process ends and nobody wanted that. One that is made
// again has the same id and the same workspace, and is there with its next use.
enum class OnFailure { kNothing, kRecreate };

// Whether somebody named the backend. Where nobody did and a strength is asked for, one is chosen.
enum class BackendChoice { kDefault, kNamed };

// Whether somebody gave the time limit. Whoever sits at a terminal has only one that was given.
enum class TimeoutChoice { kDefault, kGiven };

enum class MountMode { kReadOnly, kReadWrite };

// A host folder or file that is shown inside. Both are absolute; the source is not resolved.
struct Mount {
  std::string source;
  std::string target;
  MountMode mode = MountMode::kReadOnly;
};

// Who says which host paths may be mounted. Where a configuration has lists they decide, and empty
// ones allow nothing; otherwise whoever types a path grants it.
struct MountGrants {
  enum class By { kCommandLine, kLists };
  By by = By::kCommandLine;
  std::vector<std::string> read_paths;   // may be mounted read-only
  std::vector<std::string> write_paths;  // may be mounted, writable too
};

// Everything that decides how a sandbox is built; the same names on the command line, in
// carrel.toml and in the API.
struct Spec {
  Backend backend = Backend::kNative;
  std::string runtime;  // of the backends `oci` and `docker`; empty: the first, or the engine's own
  std::string engine;   // of the backend `docker`: where it is, as whoever asked for it has it
  BackendChoice backend_choice = BackendChoice::kDefault;
  std::optional<Strength> isolation;  // it is at least so strong, or there is none
  Limits limits;
  TimeoutChoice timeout_choice = TimeoutChoice::kDefault;
  NetworkPolicy network;
  RootMode root_mode = RootMode::kReadOnly;
  // "host", "dir:/absolute/path", or the name of an imported image: a backend gets its directory
  // here instead, and `image_name` says whose it is, as "name@sha256:digest".
  std::string image = "host";
  std::string image_name;
  std::string workdir = "/workspace";
  std::string user = "agent";
  // Its ids inside; an image can name others. Never root's.
  std::uint32_t user_id = 1000;
  std::uint32_t group_id = 1000;
  std::string hostname = "sandbox";
  std::string cgroup_parent;  // where the host's control groups are made; empty: Carrel chooses
  std::vector<EnvironmentVariable> environment;  // names are unique
  std::vector<Protection> required;
  std::vector<Mount> mounts;  // no target lies in another
  MountGrants mount_grants;
  std::string workspace;  // the named one that is /workspace; empty: one that goes with the sandbox
  WorkspaceUse workspace_use = WorkspaceUse::kAlone;
  OnIdle on_idle = OnIdle::kNothing;
  std::chrono::milliseconds idle_timeout{3'600'000};
  OnFailure on_failure = OnFailure::kNothing;
  std::vector<Service> services;  // names are unique
  std::string code;               // source text that is put, read-only, at code_path(); empty: none
};

// Beside the work, and not in a workspace that is kept.
inline std::string code_path(const Spec& spec) {
  return spec.workspace.empty() ? "/workspace/code" : "/tmp/code";
}

inline constexpr std::chrono::milliseconds kOneShotTimeout{60'000};
inline constexpr std::chrono::milliseconds kLongLivedTimeout{300'000};

}  // namespace carrel::policy
