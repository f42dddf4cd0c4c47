#include "kernel/seccomp_rules.h"

#include <algorithm>
#include <cstdlib>

namespace carrel::kernel {
namespace {

constexpr std::uint32_t kAllBits = 0xffff'ffff;
constexpr int kNumberLimit = 4096;

Condition low32(Argument argument, Membership membership, std::uint32_t mask,
                std::initializer_list<std::uint32_t> values) {
  return Condition{argument, Width::kLow32, membership, mask, {values.begin(), values.end()}};
}

}  // namespace

bool Condition::holds(const seccomp_data& call) const {
  std::uint64_t value = call.args[static_cast<std::size_t>(argument)];
  if (width == Width::kLow32) {
    value &= kAllBits;
  }
  const bool found = std::ranges::find(values, value & mask) != values.end();
  return found == (membership == Membership::kIn);
}

Condition equals(Argument argument, std::uint32_t value) {
  return low32(argument, Membership::kIn, kAllBits, {value});
}

Condition differs(Argument argument, std::uint32_t value) {
  return low32(argument, Membership::kNotIn, kAllBits, {value});
}

Condition one_of(Argument argument, std::initializer_list<std::uint32_t> values) {
  return low32(argument, Membership::kIn, kAllBits, values);
}

Condition masked_one_of(Argument argument, std::uint32_t mask,
                        std::initializer_list<std::uint32_t> values) {
  return low32(argument, Membership::kIn, mask, values);
}

Condition masked_none_of(Argument argument, std::uint32_t mask,
                         std::initializer_list<std::uint32_t> values) {
  return low32(argument, Membership::kNotIn, mask, values);
}

Condition only_bits(Argument argument, std::uint64_t allowed) {
  return Condition{argument, Width::kFull64, Membership::kIn, ~allowed, {0}};
}

SeccompAction Verdict::decide(const seccomp_data& call) const {
  for (const Clause& clause : clauses) {
    if (std::ranges::all_of(clause.conditions,
                            [&](const Condition& condition) { return condition.holds(call); })) {
      return clause.action;
    }
  }
  return otherwise;
}

SyscallRules::SyscallRules(SeccompAction unknown) {
  verdict_of_number_.reserve(512);
  verdicts_.push_back(Verdict{unknown, {}});
}

void SyscallRules::set(int number, const Verdict& verdict) { assign(number, intern(verdict)); }

void SyscallRules::set(std::span<const int> numbers, const Verdict& verdict) {
  const std::uint16_t index = intern(verdict);
  for (const int number : numbers) {
    assign(number, index);
  }
}

void SyscallRules::set_range(int first, int last, const Verdict& verdict) {
  const std::uint16_t index = intern(verdict);
  for (int number = first; number <= last; ++number) {
    assign(number, index);
  }
}

SeccompAction SyscallRules::decide(const seccomp_data& call) const {
  if (call.arch != kNativeArch) {
    return kKillProcess;
  }
  const auto number = static_cast<std::uint32_t>(call.nr);
  if (kHasX32 && number >= kX32Bit && number != kSkippedCall) {
    return kKillProcess;
  }
  return verdict(number).decide(call);
}

std::uint16_t SyscallRules::intern(const Verdict& verdict) {
  const auto found = std::ranges::find(verdicts_, verdict);
  const auto index = static_cast<std::uint16_t>(found - verdicts_.begin());
  if (found == verdicts_.end()) {
    verdicts_.push_back(verdict);
  }
  return index;
}

void SyscallRules::assign(int number, std::uint16_t index) {
  if (number < 0 || number >= kNumberLimit) {
    std::abort();
  }
  const auto position = static_cast<std::size_t>(number);
  if (position >= verdict_of_number_.size()) {
    verdict_of_number_.resize(position + 1, 0);
  }
  verdict_of_number_[position] = index;
}

}  // namespace carrel::kernel
