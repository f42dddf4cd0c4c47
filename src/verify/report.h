#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "verify/attack_table.h"

namespace carrel::verify {

enum class Verdict {
  kHeld,
  kHole,           // something was reached, changed or taken that must not be
  kGranted,        // it was, and the policy allows it
  kNotApplicable,  // there is nothing of the kind here, or the backend does not promise it
  kUnclear,        // the attack itself failed; nothing is known
};
std::string_view name_of(Verdict verdict);

// What came of one attack.
struct Finding {
  std::string name;
  Group group = Group::kFiles;
  std::string tries;
  Verdict verdict = Verdict::kUnclear;
  std::string detail;  // the hole, the grant or the reason; empty where it held
  std::int64_t duration_ms = 0;
};

struct Report {
  std::string backend;
  std::string builder;  // with its version; empty: the guest itself
  std::vector<std::string> notes;
  std::vector<Finding> findings;
  std::int64_t duration_ms = 0;

  [[nodiscard]] std::size_t count(Verdict verdict) const;
  // Whether nothing got through and nothing is unclear.
  [[nodiscard]] bool held() const;
};

// "3 held, 1 hole"; verdicts that nothing has are left out.
std::string summary(const Report& report);
std::string to_json(const Report& report);
// For what reads the results of tests: a suite for each group.
std::string to_junit(const Report& report);

}  // namespace carrel::verify
