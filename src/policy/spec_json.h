#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/spec.h"

namespace carrel::policy {

// A Spec as one JSON object. For the keeper it is whole; for the state database it has the names of
// the variables and not their values, which can be secrets.
enum class Values { kIncluded, kLeftOut };
std::string spec_to_json(const Spec& spec, Values values);
Result<Spec> spec_from_json(std::string_view text);

}  // namespace carrel::policy
