#pragma once

#include <string>
#include <vector>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "policy/spec.h"
#include "storage/mount_facts.h"

namespace carrel::native {

// The mounts of a spec, each opened once and judged (policy/mounts.h). One that is refused is an
// error (kDenied) that names it and the rule; then there are none.
Result<std::vector<GivenTree>> open_mounts(const policy::Spec& spec, const storage::OwnPlaces& own);

// "hidden in it: .env (a name that credentials have)"; empty where nothing is.
std::string hidden_text(const GivenTree& tree);

}  // namespace carrel::native
