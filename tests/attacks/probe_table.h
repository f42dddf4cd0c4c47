#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "attacks/control.h"

namespace carrel::test {

// A probe, how it is run in a sandbox, and the world without protection in which it succeeds.
struct ProbeCase {
  std::string name;
  std::vector<std::string> options;    // of `carrel run`
  std::vector<std::string> arguments;  // of the probe
  World control;

  friend void PrintTo(const ProbeCase& one, std::ostream* out) { *out << one.name; }
};

// Every probe of the program; controls_test.cc checks that none is missing. What the probe of the
// host's paths and the one of listeners take is added by the test.
std::span<const ProbeCase> probe_cases();

}  // namespace carrel::test
