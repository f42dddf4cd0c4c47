#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/mounts.h"
#include "policy/spec.h"
#include "storage/mount_table.h"
#include "storage/mount_walk.h"

namespace carrel::storage {

// Gathers what policy::decide_mount() judges. The source is opened once; everything is asked of
// that descriptor, and it is what has to be mounted (open_tree with an empty path), so that nothing
// can be put in its place between the check and the mount. What is created in the tree afterwards
// is not looked at.

// Carrel's own places, which are forbidden too. Empty ones do not exist.
struct OwnPlaces {
  std::string state;        // CARREL_HOME
  std::string policy_file;  // the configuration that grants; neither it nor its folder is mounted
};

// The forbidden paths of this host: the fixed ones, those of every user, Carrel's own.
Result<std::vector<policy::ForbiddenPath>> host_forbidden_paths(const OwnPlaces& own);

struct JudgedMount {
  UniqueFd source;  // O_PATH; not valid if there is nothing to open
  policy::MountDecision decision;
};

struct MountQuestion {
  std::string source;  // absolute
  policy::MountMode mode = policy::MountMode::kReadOnly;
};

class MountJudge {
 public:
  static Result<MountJudge> open(const std::vector<policy::ForbiddenPath>& forbidden);

  // A refusal is a decision; an error is that the facts could not be had. Only a tree that is
  // allowed so far is looked through.
  Result<JudgedMount> judge(const policy::MountGrants& grants, const MountQuestion& question,
                            const WalkLimits& limits = {}) const;

  // The same, where a refusal is an error (kDenied) that names the source and the rule.
  Result<JudgedMount> grant(const policy::MountGrants& grants, const MountQuestion& question) const;

 private:
  [[nodiscard]] std::vector<policy::SubMount> mounts_in(int top, const std::string& path) const;
  Status look_through(int source, policy::MountFacts& facts, const WalkLimits& limits) const;

  std::vector<HostMount> table_;
  std::vector<policy::ForbiddenPlace> forbidden_;
};

}  // namespace carrel::storage
