#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "policy/mounts.h"

namespace carrel::storage {

// How much of a tree is examined. One that is larger is not mounted: what was not looked at could
// hold anything.
struct WalkLimits {
  std::size_t entries = 1'000'000;
  std::size_t depth = 128;  // levels below the top; each costs an open file
};

// Files with several names, of which one is in a forbidden place. They are looked up at the first
// question. What containers are stored in (/var/lib/docker and its like) is left out: it is large,
// and only root could link to it. So are caches, whose public files have names everywhere.
class ForbiddenFiles {
 public:
  explicit ForbiddenFiles(const std::vector<policy::ForbiddenPlace>& places) : places_(places) {}

  // kTooMany if the forbidden places are too large to be looked through.
  Result<bool> hold(policy::FileId file);

 private:
  const std::vector<policy::ForbiddenPlace>& places_;
  std::optional<std::set<std::pair<std::uint64_t, std::uint64_t>>> files_;
};

struct WalkedTree {
  std::vector<policy::Entry> noticed;
  policy::Examined examined = policy::Examined::kAll;
};

// Looks at everything below `folder`, by descriptor and following no link. `mounts` are the host's
// mounts in it; those of the kernel's own file systems are not entered, and neither is what has a
// name of credentials.
Result<WalkedTree> walk_tree(int folder, const std::vector<policy::SubMount>& mounts,
                             ForbiddenFiles& forbidden, const WalkLimits& limits);

// What fstat says it is.
policy::FileKind kind_of(unsigned mode);

}  // namespace carrel::storage
