#include "kernel/seccomp_evaluate.h"

#include <cstring>

namespace carrel::kernel {

SeccompAction evaluate(const SeccompProgram& program, const seccomp_data& call) {
  std::uint32_t accumulator = 0;
  // Every jump is forward, so the position only grows and the loop ends.
  for (std::size_t position = 0; position < program.instructions.size(); ++position) {
    const sock_filter& instruction = program.instructions[position];
    const auto branch = [&](bool taken) { position += taken ? instruction.jt : instruction.jf; };
    switch (instruction.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        if (instruction.k % 4 != 0 || instruction.k > sizeof(call) - 4) {
          return kKillProcess;
        }
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&call) + instruction.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= instruction.k;
        break;
      case BPF_JMP | BPF_JA:
        position += instruction.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        branch(accumulator == instruction.k);
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        branch(accumulator >= instruction.k);
        break;
      case BPF_RET | BPF_K:
        return SeccompAction{instruction.k};
      default:
        return kKillProcess;
    }
  }
  return kKillProcess;
}

}  // namespace carrel::kernel
