#pragma once

#include <span>
#include <string_view>

#include "policy/backend.h"
#include "policy/spec.h"

namespace carrel::verify {

// Where a backend does not promise what others do: the same as in tests/conformance. It is about
// the attempts of a probe that begin so; another one that gets through is a hole.
struct Difference {
  policy::Backend backend;
  std::string_view
      runtime;  // empty: any that shares the host's kernel; otherwise whoever starts it
  std::string_view probe;
  std::string_view attempt;  // empty: all of them
  std::string_view reason;
};
std::span<const Difference> differences();

// Why nobody promises that this attempt fails with these walls; empty: it is promised.
std::string_view not_promised(const policy::Spec& spec, std::string_view probe,
                              std::string_view attempt);

}  // namespace carrel::verify
