#pragma once

#include <algorithm>
#include <chrono>

#include "support/host.h"

namespace carrel::test {

// How much longer than usual the tests wait before they give something up, and how much longer it
// may take: CARREL_TEST_SLOWNESS, which tests/conformance sets for a backend that is slow.
inline long slowness() {
  return static_cast<long>(std::clamp(number_from("CARREL_TEST_SLOWNESS", 1), 1UL, 100UL));
}

inline std::chrono::milliseconds patient(std::chrono::milliseconds usual) {
  return usual * slowness();
}

}  // namespace carrel::test
