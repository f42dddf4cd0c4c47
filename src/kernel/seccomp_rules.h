#pragma once

#include <linux/audit.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace carrel::kernel {

// What the kernel does with a system call: a SECCOMP_RET_* value with its data.
struct SeccompAction {
  std::uint32_t value = SECCOMP_RET_KILL_PROCESS;
  bool operator==(const SeccompAction&) const = default;
};

inline constexpr SeccompAction kAllowCall{SECCOMP_RET_ALLOW};
inline constexpr SeccompAction kKillProcess{SECCOMP_RET_KILL_PROCESS};

// The call returns -1 with this errno (1 to 4095) and does nothing.
constexpr SeccompAction fail_with(int error_number) {
  return SeccompAction{SECCOMP_RET_ERRNO |
                       (static_cast<std::uint32_t>(error_number) & SECCOMP_RET_DATA)};
}

enum class Argument : std::uint8_t { kFirst, kSecond, kThird, kFourth, kFifth, kSixth };

// How much of the register counts. The kernel cuts an `int` argument to its low 32 bits, so a
// comparison of all 64 would let `value | 1 << 32` through.
enum class Width : std::uint8_t { kLow32, kFull64 };

enum class Membership : std::uint8_t { kIn, kNotIn };

// A test of one argument: whether the argument, cut to `width` and masked, is one of `values`.
// Pointers are only numbers here: what they point at can change after the check.
struct Condition {
  Argument argument = Argument::kFirst;
  Width width = Width::kLow32;
  Membership membership = Membership::kIn;
  std::uint64_t mask = 0;
  std::vector<std::uint64_t> values;

  [[nodiscard]] bool holds(const seccomp_data& call) const;
  bool operator==(const Condition&) const = default;
};

// Conditions on the low 32 bits of an argument.
Condition equals(Argument argument, std::uint32_t value);
Condition differs(Argument argument, std::uint32_t value);
Condition one_of(Argument argument, std::initializer_list<std::uint32_t> values);
Condition masked_one_of(Argument argument, std::uint32_t mask,
                        std::initializer_list<std::uint32_t> values);
Condition masked_none_of(Argument argument, std::uint32_t mask,
                         std::initializer_list<std::uint32_t> values);
// Holds when none of the 64 bits outside `allowed` is set.
Condition only_bits(Argument argument, std::uint64_t allowed);

// Its action applies when all of its conditions hold.
struct Clause {
  std::vector<Condition> conditions;
  SeccompAction action;
  bool operator==(const Clause&) const = default;
};

// The answer to one system call: that of the first clause that applies, or `otherwise`.
struct Verdict {
  SeccompAction otherwise;
  std::vector<Clause> clauses;

  [[nodiscard]] SeccompAction decide(const seccomp_data& call) const;
  bool operator==(const Verdict&) const = default;
};

// The AUDIT_ARCH_* value of the architecture this program is built for, and whether it has x32, a
// second calling convention whose numbers start at kX32Bit.
#if defined(__x86_64__)
inline constexpr std::uint32_t kNativeArch = AUDIT_ARCH_X86_64;
inline constexpr bool kHasX32 = true;
#elif defined(__aarch64__)
inline constexpr std::uint32_t kNativeArch = AUDIT_ARCH_AARCH64;
inline constexpr bool kHasX32 = false;
#else
#error "the system call filter knows x86-64 and aarch64"
#endif
inline constexpr std::uint32_t kX32Bit = 0x4000'0000;
// Not x32: a tracer writes -1 over the number of a call to skip it.
inline constexpr std::uint32_t kSkippedCall = 0xffff'ffff;

// A verdict for every system call number. A number without one gets the `unknown` action, and so
// does kSkippedCall; a call of a foreign architecture or of x32 ends the process.
class SyscallRules {
 public:
  explicit SyscallRules(SeccompAction unknown);

  // A later verdict for a number replaces the earlier one. Numbers must lie in 0 to 4095.
  void set(int number, const Verdict& verdict);
  void set(std::span<const int> numbers, const Verdict& verdict);
  void set_range(int first, int last, const Verdict& verdict);

  // One more than the largest number that has a verdict.
  [[nodiscard]] std::uint32_t limit() const {
    return static_cast<std::uint32_t>(verdict_of_number_.size());
  }
  [[nodiscard]] const Verdict& verdict(std::uint32_t number) const {
    return verdicts_[verdict_index(number)];
  }
  // Numbers with equal verdicts have the same index.
  [[nodiscard]] std::size_t verdict_index(std::uint32_t number) const {
    return number < limit() ? verdict_of_number_[number] : 0;
  }
  [[nodiscard]] std::span<const Verdict> verdicts() const { return verdicts_; }

  // What the rules mean, word for word: the reference that compiled programs are tested against.
  [[nodiscard]] SeccompAction decide(const seccomp_data& call) const;

 private:
  std::uint16_t intern(const Verdict& verdict);
  void assign(int number, std::uint16_t index);

  std::vector<Verdict> verdicts_;  // the first one is the unknown number's
  std::vector<std::uint16_t> verdict_of_number_;
};

}  // namespace carrel::kernel
