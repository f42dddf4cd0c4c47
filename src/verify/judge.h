#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policy/spec.h"
#include "sandbox/exec_result.h"
#include "verify/attack_table.h"
#include "verify/report.h"

// What a probe said becomes a verdict. Pure functions: what came out of the sandbox is hostile.
namespace carrel::verify {

// The line of a probe.
struct Answer {
  std::vector<std::string> open;  // attempts that got through
  std::vector<std::string> not_applicable;
  std::size_t held = 0;  // attempts that did not
};

// Nothing where there is no line of that probe, or anything beside it.
std::optional<Answer> parse_answer(std::string_view output, std::string_view probe);

struct Judgement {
  Verdict verdict = Verdict::kUnclear;
  std::string detail = {};
};

// By the line of the probe, or, for a probe that may be ended, by its end.
Judgement judge(const Attack& attack, const policy::Spec& spec, const sandbox::ExecResult& result);

// Why the policy allows what the attempt did; empty: it does not.
std::string granted_by(const Attack& attack, std::string_view attempt, const policy::Spec& spec);

}  // namespace carrel::verify
