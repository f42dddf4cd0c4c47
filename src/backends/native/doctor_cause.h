#pragma once

#include <string>

#include "backends/native/doctor_facts.h"

namespace carrel::native {

// Why something does not work and the one setting that would change it.
struct Cause {
  std::string why;
  std::string fix;
};

// Why a feature that was tried failed, as far as the facts tell. The reasons that hold for
// everything (a filter, a security module) come after those of the feature itself.
Cause cause_of(Feature feature, const DoctorFacts& facts);

// The same for a limit that no control group holds here.
enum class Limit { kMemory, kCpu, kPids };
Cause cause_of(Limit limit, const DoctorFacts& facts);

// The command that sets a kernel setting ("name=value"), and where to type it.
std::string sysctl_fix(const Surroundings& around, const std::string& setting);

}  // namespace carrel::native
