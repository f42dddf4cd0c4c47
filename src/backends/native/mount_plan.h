#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/native/given_tree.h"
#include "backends/native/host_etc.h"
#include "base/result.h"
#include "policy/spec.h"

namespace carrel::native {

// How the root of one sandbox is built, as the steps of protocol/boot.h in their wire form.
struct MountPlan {
  std::string shared;   // what all sandboxes of this kind have together
  std::string alike;    // what each of them has for itself, and all alike
  std::string own;      // what is this sandbox's own
  std::string staging;  // a host directory that the plan can be built on
  // Whether a nursery can have the first two parts ready.
  enum class Nursing { kImpossible, kPossible } nursing = Nursing::kImpossible;
  // Which files of the host are in the image `host`: one that was replaced since is another one.
  std::string sources;
};

// What the plan needs to know of the host; gathered once so that the plan is a pure function.
struct HostTree {
  std::vector<std::string> directories;  // of /bin, /lib, /lib64, … those that are real directories
  std::vector<std::pair<std::string, std::string>> links;  // and those that are links: name, target
  HostEtc etc;          // what of /etc is part of the image `host`
  std::string python;   // what `python` is a link to; empty: it is there, or there is no python3
  std::string sources;  // the device and the inode of each of these directories
};

// The folder of programs of ours in the image `host`, the last of its PATH.
inline constexpr std::string_view kOwnPrograms = "/opt/carrel/bin";

enum class Lifetime { kOneShot, kLongLived };

// Text for files that the sandbox sees instead of the host's.
struct Identity {
  std::uint32_t uid = 1000;
  std::uint32_t gid = 1000;
  std::string machine_id;  // 32 hex digits
  std::uint32_t cpus = 1;
  std::string boot_id;         // a UUID
  std::int64_t boot_time = 0;  // when the sandbox's clocks began, in seconds of the wall clock
};

// What a guest that waits for its sandbox builds before that is known.
struct AheadPlan {
  MountPlan plan;
  Identity identity;  // of the sandbox that it will be
  std::string boot;   // with which it has locked itself in; empty: it has not
};

// What is left of `wanted` where the one is built, in the wire form of kRest; nothing where
// `wanted` is no more of the same.
std::optional<std::string> rest_after(const MountPlan& built, const MountPlan& wanted);

HostTree look_at_host();

// Whether the image that the spec names is there.
Status check_image(const policy::Spec& spec);

// The paths that a command may write to.
std::vector<std::string> writable_paths(const policy::Spec& spec,
                                        std::span<const GivenTree> trees = {});

// How a guest gets at a tree: as the mount that it is, or by its path on the host, which it
// compares with the descriptor.
enum class TreesBy { kMount, kPath };

// The descriptors of `trees` go with the plan, in their order. No target is in another's.
struct GivenTrees {
  std::span<const GivenTree> trees;
  TreesBy by = TreesBy::kPath;
};

Result<MountPlan> plan_mounts(const policy::Spec& spec, const HostTree& host,
                              const Identity& identity, Lifetime lifetime,
                              const GivenTrees& given = {});

}  // namespace carrel::native
