#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/native/given_tree.h"
#include "backends/native/logout.h"
#include "base/result.h"
#include "kernel/cgroup.h"
#include "policy/spec.h"
#include "protocol/boot.h"
#include "sandbox/walls.h"

namespace carrel::native {

// What really holds a sandbox in, as names and short words ("cgroup v2", "watchdog").
struct Enforcement {
  struct Row {
    std::string name;
    std::string by;
    std::string note;  // what is weaker than it could be, and why; empty when nothing is
    bool operator==(const Row&) const = default;
  };
  std::vector<Row> rows;
  bool operator==(const Enforcement&) const = default;

  [[nodiscard]] const Row* find(const std::string& name) const {
    for (const Row& row : rows) {
      if (row.name == name) {
        return &row;
      }
    }
    return nullptr;
  }
};

// The row that names what is known to be wrong with whoever built the walls.
inline constexpr char kKnownFlaws[] = "known flaws";
// The row that tells that walls were never tried by those who wrote this.
inline constexpr char kVerified[] = "verified";
// The row that tells how a machine began.
inline constexpr char kStartedFrom[] = "started from";

struct EnforcementFacts {
  kernel::CgroupEnforcement cgroup;
  std::string why_no_memory;
  std::string why_no_cpu;
  std::string why_no_pids;
  std::string builder;            // of the walls, with its version; empty: the guest
  sandbox::LimitHolders holders;  // where this process has no control groups for them
  std::string builder_warning;    // what is known to be wrong with that version
  sandbox::Origin origin;         // of a machine
  // Of one that is a machine by somebody's word only: what was seen of its kernel.
  std::optional<sandbox::SeenKernel> seen;
  int landlock_abi = 0;
  enum class Kernel { kHosts, kGvisors, kMachines };
  Kernel kernel = Kernel::kHosts;
  bool root = false;
  std::optional<LogoutFacts> logout;  // of a long-lived one
  struct Tree {
    std::string target;
    policy::MountMode mode = policy::MountMode::kReadOnly;
    Ownership ownership = Ownership::kCallers;
    GivenTree::Owner owner;
    std::string hidden;  // what is covered in it
  };
  std::vector<Tree> trees;
  std::uint64_t own_disk_bytes = 0;  // what the workspace's own file system holds; zero: none
};

// Whether the workspace has a file system that holds its size.
bool holds_disk(const policy::Spec& spec, const EnforcementFacts& facts);

Enforcement describe(const policy::Spec& spec, const EnforcementFacts& facts);

// What the guest says that the kernel could give it.
void add_clocks(protocol::Clocks clocks, Enforcement& enforcement);

// kUnsupported, with its name and the reason, when a required protection has only a substitute.
Status check_required(const policy::Spec& spec, const EnforcementFacts& facts);

}  // namespace carrel::native
