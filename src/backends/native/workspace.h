#pragma once

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "policy/spec.h"
#include "storage/home.h"

namespace carrel::native {

// The workspace that a sandbox is about to have, and what keeps others from it.
struct UsedWorkspace {
  GivenTree tree;
  UniqueFd use;   // to be held as long as a one-shot runs, or until a long-lived one is made
  UniqueFd lock;  // until the sandbox is made
};

// The workspace that the spec names, made if it is missing. kConflict when somebody else has it and
// not both share it.
Result<UsedWorkspace> use_workspace(const storage::Home& home, const policy::Spec& spec);

}  // namespace carrel::native
