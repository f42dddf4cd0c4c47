#pragma once

#include "policy/network.h"

namespace carrel::policy {

// Whether everything that `wanted` allows is allowed by `given` too, as far as that can be told
// from the rules one by one: each allowance lies in one of `given`, and each denial of `given` in
// one of `wanted`. What cannot be told is false.
bool network_narrows(const NetworkPolicy& given, const NetworkPolicy& wanted);

}  // namespace carrel::policy
