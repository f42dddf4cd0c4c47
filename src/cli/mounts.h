#pragma once

#include <vector>

#include "backends/native/given_tree.h"
#include "cli/context.h"
#include "policy/spec.h"
#include "storage/mount_facts.h"

namespace carrel::cli {

// Carrel's own places, which nobody mounts.
Result<storage::OwnPlaces> own_places(const Arguments& arguments);

// The spec's mounts, opened and judged; says on stderr what is hidden in them, unless the answer is
// JSON. Nothing exists yet that a refusal would leave behind.
Result<std::vector<native::GivenTree>> open_mounts(const Context& context,
                                                   const policy::Spec& spec);

}  // namespace carrel::cli
