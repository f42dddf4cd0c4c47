#include "kernel/seccomp_graph.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <ranges>
#include <utility>

namespace carrel::kernel {
namespace {

static_assert(std::endian::native == std::endian::little, "argument words are taken in this order");

constexpr DataWord kNumberWord{offsetof(seccomp_data, nr)};
constexpr DataWord kArchWord{offsetof(seccomp_data, arch)};

// Up to this many single numbers are compared one after the other instead of by halves: one
// instruction for each instead of two, at the price of a longer way through the program.
constexpr std::size_t kLongestChain = 4;

// Consecutive numbers with one verdict. It ends where the next one starts.
struct Run {
  std::uint32_t first = 0;
  std::size_t verdict = 0;
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const SyscallRules& rules)
      : rules_(rules), verdict_nodes_(rules.verdicts().size()) {}

  DecisionGraph build() {
    graph_.nodes.reserve(256);
    for (std::uint32_t number = 0; number <= rules_.limit(); ++number) {
      const std::size_t verdict = rules_.verdict_index(number);
      if (runs_.empty() || runs_.back().verdict != verdict) {
        runs_.push_back(Run{number, verdict});
      }
    }
    const std::size_t kill = give(kKillProcess);
    std::size_t root = search(0, runs_.size());
    if (kHasX32) {
      const std::size_t foreign = equal(kNumberWord, kSkippedCall, of_verdict(0), kill);
      root = add({DecisionNode::Kind::kAtLeast, kNumberWord, kX32Bit, foreign, root});
    }
    graph_.root = equal(kArchWord, kNativeArch, root, kill);
    return std::move(graph_);
  }

 private:
  std::size_t add(const DecisionNode& node) {
    if (node.kind != DecisionNode::Kind::kReturn && node.yes == node.no) {
      return node.yes;
    }
    // Each comparison of the number is there once anyway.
    if (node.kind == DecisionNode::Kind::kReturn || node.word != kNumberWord) {
      for (const std::size_t shared : shared_) {
        if (graph_.nodes[shared] == node) {
          return shared;
        }
      }
      shared_.push_back(graph_.nodes.size());
    }
    graph_.nodes.push_back(node);
    return graph_.nodes.size() - 1;
  }

  std::size_t give(SeccompAction action) {
    return add({DecisionNode::Kind::kReturn, {}, action.value, 0, 0});
  }

  std::size_t equal(DataWord word, std::uint32_t operand, std::size_t yes, std::size_t no) {
    if (word.mask == 0 || (operand & ~word.mask) != 0) {
      return operand == 0 ? yes : no;
    }
    return add({DecisionNode::Kind::kEqual, word, operand, yes, no});
  }

  // Finds the verdict of a number that lies in runs [begin, end).
  std::size_t search(std::size_t begin, std::size_t end) {
    if (const auto chain = search_by_chain(begin, end)) {
      return *chain;
    }
    const std::size_t middle = begin + (end - begin) / 2;
    const std::size_t above = search(middle, end);
    const std::size_t below = search(begin, middle);
    return add({DecisionNode::Kind::kAtLeast, kNumberWord, runs_[middle].first, above, below});
  }

  // The same for runs of which all but a few single numbers have one verdict.
  std::optional<std::size_t> search_by_chain(std::size_t begin, std::size_t end) {
    const auto is_single = [&](std::size_t run) {
      return run + 1 < runs_.size() && runs_[run + 1].first == runs_[run].first + 1;
    };
    for (std::size_t common = begin; common < std::min(begin + 2, end); ++common) {
      std::vector<Run> exceptions;
      bool only_singles = true;
      for (std::size_t run = begin; run < end; ++run) {
        if (runs_[run].verdict != runs_[common].verdict) {
          only_singles = only_singles && is_single(run);
          exceptions.push_back(runs_[run]);
        }
      }
      if (!only_singles || exceptions.size() > kLongestChain) {
        continue;
      }
      std::size_t node = of_verdict(runs_[common].verdict);
      for (const Run& exception : exceptions | std::views::reverse) {
        node = equal(kNumberWord, exception.first, of_verdict(exception.verdict), node);
      }
      return node;
    }
    return std::nullopt;
  }

  std::size_t of_verdict(std::size_t index) {
    if (!verdict_nodes_[index]) {
      const Verdict& verdict = rules_.verdicts()[index];
      std::size_t node = give(verdict.otherwise);
      for (const Clause& clause : verdict.clauses | std::views::reverse) {
        std::size_t applies = give(clause.action);
        for (const Condition& condition : clause.conditions | std::views::reverse) {
          applies = of_condition(condition, applies, node);
        }
        node = applies;
      }
      verdict_nodes_[index] = node;
    }
    return *verdict_nodes_[index];
  }

  std::size_t of_condition(const Condition& condition, std::size_t holds, std::size_t fails) {
    if (condition.membership == Membership::kNotIn) {
      std::swap(holds, fails);
    }
    const auto low_offset = static_cast<std::uint32_t>(
        offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(condition.argument));
    const DataWord low{low_offset, static_cast<std::uint32_t>(condition.mask)};
    const bool wide = condition.width == Width::kFull64;
    const DataWord high{low_offset + 4,
                        wide ? static_cast<std::uint32_t>(condition.mask >> 32) : 0};
    // Values with the same upper half are neighbours once they are sorted.
    std::vector<std::uint64_t> values = condition.values;
    std::ranges::sort(values, std::greater{});
    std::size_t node = fails;
    for (auto value = values.begin(); value != values.end();) {
      const auto upper = static_cast<std::uint32_t>(*value >> 32);
      std::size_t low_node = fails;
      for (; value != values.end() && *value >> 32 == upper; ++value) {
        low_node = equal(low, static_cast<std::uint32_t>(*value), holds, low_node);
      }
      node = equal(high, upper, low_node, node);
    }
    return node;
  }

  const SyscallRules& rules_;
  std::vector<Run> runs_;
  std::vector<std::optional<std::size_t>> verdict_nodes_;
  std::vector<std::size_t> shared_;  // nodes that a later equal one becomes
  DecisionGraph graph_;
};

}  // namespace

DecisionGraph build_decision_graph(const SyscallRules& rules) {
  return GraphBuilder(rules).build();
}

}  // namespace carrel::kernel
