#include "kernel/seccomp.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernel/seccomp_graph.h"

namespace carrel::kernel {
namespace {

// A conditional jump reaches 255 instructions; two are kept for the ones that may come between.
constexpr std::size_t kReach = 253;
constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

// Writes a graph as instructions from the last to the first, so that every jump's target already
// has its place. Positions count from the end of the program until finish() turns it around.
class Assembler {
 public:
  explicit Assembler(const DecisionGraph& graph)
      : graph_(graph), places_(graph.nodes.size()), needs_load_(graph.nodes.size(), false) {
    code_.reserve(2 * graph.nodes.size());
    find_loads();
  }

  SeccompProgram finish() {
    place(graph_.root);
    std::ranges::reverse(code_);
    return SeccompProgram{std::move(code_)};
  }

 private:
  // Where a node starts: with the load of its word, and behind it for whoever has it loaded.
  struct Place {
    std::size_t with_load = kNowhere;
    std::size_t loaded = kNowhere;
  };

  // A node loads its word unless everyone who leads to it has just looked at the same one.
  void find_loads() {
    needs_load_[graph_.root] = true;
    for (const DecisionNode& node : graph_.nodes) {
      if (node.kind != DecisionNode::Kind::kReturn) {
        for (const std::size_t next : {node.yes, node.no}) {
          needs_load_[next] = needs_load_[next] || graph_.nodes[next].word != node.word;
        }
      }
    }
  }

  std::size_t emit(std::uint32_t code, std::uint32_t operand, std::size_t yes = 0,
                   std::size_t no = 0) {
    code_.push_back(sock_filter{static_cast<std::uint16_t>(code), static_cast<std::uint8_t>(yes),
                                static_cast<std::uint8_t>(no), operand});
    return code_.size() - 1;
  }

  // How far the next instruction would have to jump to get to `position`.
  [[nodiscard]] std::size_t distance(std::size_t position) const {
    return code_.size() - position - 1;
  }

  void place(std::size_t index) {
    const DecisionNode& node = graph_.nodes[index];
    Place& own = places_[index];
    if (own.loaded != kNowhere) {
      return;
    }
    if (node.kind == DecisionNode::Kind::kReturn) {
      own.loaded = own.with_load = emit(BPF_RET | BPF_K, node.operand);
      return;
    }
    place(node.yes);
    place(node.no);
    bring_near(node.yes, node.word);
    bring_near(node.no, node.word);
    const std::uint32_t test = node.kind == DecisionNode::Kind::kEqual ? BPF_JEQ : BPF_JGE;
    own.loaded = emit(BPF_JMP | test | BPF_K, node.operand, distance(entry(node.yes, node.word)),
                      distance(entry(node.no, node.word)));
    if (needs_load_[index]) {
      if (node.word.mask != DataWord{}.mask) {
        emit(BPF_ALU | BPF_AND | BPF_K, node.word.mask);
      }
      own.with_load = emit(BPF_LD | BPF_W | BPF_ABS, node.word.offset);
    }
  }

  // Where to enter a node with this word in the accumulator.
  std::size_t& entry(std::size_t index, DataWord word) {
    const DecisionNode& node = graph_.nodes[index];
    const bool loaded = node.kind == DecisionNode::Kind::kReturn || node.word == word;
    return loaded ? places_[index].loaded : places_[index].with_load;
  }

  // Sees to it that the next two instructions can jump to the node: if it has moved out of reach,
  // by a copy of it or by a long jump, which later users share.
  void bring_near(std::size_t index, DataWord word) {
    std::size_t& target = entry(index, word);
    if (distance(target) <= kReach) {
      return;
    }
    const DecisionNode& node = graph_.nodes[index];
    if (node.kind == DecisionNode::Kind::kReturn) {
      target = emit(BPF_RET | BPF_K, node.operand);
    } else {
      target = emit(BPF_JMP | BPF_JA, static_cast<std::uint32_t>(distance(target)));
    }
  }

  const DecisionGraph& graph_;
  std::vector<Place> places_;
  std::vector<bool> needs_load_;
  std::vector<sock_filter> code_;
};

}  // namespace

sock_fprog SeccompProgram::view() const {
  // The kernel only reads it; its interface predates const.
  return sock_fprog{static_cast<unsigned short>(instructions.size()),
                    const_cast<sock_filter*>(instructions.data())};
}

SeccompProgram compile(const SyscallRules& rules) {
  return Assembler(build_decision_graph(rules)).finish();
}

}  // namespace carrel::kernel
