#pragma once

#include <vector>

#include "backends/native/doctor.h"

namespace carrel::native {

// Settings of the host that do not keep sandboxes from working and that an operator should know:
// each is a check that is ok or a warning, never missing.
std::vector<Check> look_at_settings(const DoctorFacts& facts);

}  // namespace carrel::native
