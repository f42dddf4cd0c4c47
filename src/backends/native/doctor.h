#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/native/doctor_facts.h"

namespace carrel::native {

enum class CheckStatus { kOk, kMissing, kWarning };

std::string_view status_name(CheckStatus status);

// One line of the doctor's report. `detail` says what it means here; `fix` is the one thing to
// change, empty when nothing has to be, and for what was not tried because something before it is
// missing.
struct Check {
  std::string name;
  CheckStatus status = CheckStatus::kOk;
  std::string detail;
  std::string fix;
  bool tried = true;
};

struct Diagnosis {
  bool ok = false;  // sandboxes work here
  std::vector<Check> checks;
  std::string verdict;  // one line
};

// The name of a feature in the report.
std::string_view feature_name(Feature feature);

// What the facts mean, and what to do. A pure function: nothing is looked at here.
Diagnosis diagnose(const DoctorFacts& facts);

}  // namespace carrel::native
