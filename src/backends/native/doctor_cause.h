#pragma once

#include <string>

#include "backends/native/doctor_facts.h"

namespace carrel::native {

// Why something does not work and the one setting that would change it.
struct Cause {
  std::string why;
  std::string fix;
};

// The cause of a feature's failure, as far as the facts tell; `outcome` is not 0. The reasons that
// hold for everything (a filter, a security module) come after those of the feature itself.
Cause cause_of(Feature feature, const DoctorFacts& facts);

// The same for a limit that no control group holds here.
enum class Limit { kMemory, kCpu, kPids };
Cause cause_of(Limit limit, const DoctorFacts& facts);

}  // namespace carrel::native
