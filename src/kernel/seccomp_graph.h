#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernel/seccomp_rules.h"

namespace carrel::kernel {

// One 32-bit word of seccomp_data under a mask: what a filter can look at in one step.
struct DataWord {
  std::uint32_t offset = 0;
  std::uint32_t mask = 0xffff'ffff;
  bool operator==(const DataWord&) const = default;
};

// A step of a decision: compare a word and go on, or return an action (then `operand` is it).
struct DecisionNode {
  enum class Kind : std::uint8_t { kReturn, kEqual, kAtLeast };
  Kind kind = Kind::kReturn;
  DataWord word;
  std::uint32_t operand = 0;
  std::size_t yes = 0;
  std::size_t no = 0;
  bool operator==(const DecisionNode&) const = default;
};

// The decision that SyscallRules describe, as a graph without cycles in which equal parts exist
// once. A node's successors always have smaller indices.
struct DecisionGraph {
  std::vector<DecisionNode> nodes;
  std::size_t root = 0;
};

DecisionGraph build_decision_graph(const SyscallRules& rules);

}  // namespace carrel::kernel
