#include "kernel/seccomp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "kernel/seccomp_evaluate.h"

namespace carrel::kernel {
namespace {

constexpr SeccompAction kEperm = fail_with(EPERM);
constexpr SeccompAction kEnosys = fail_with(ENOSYS);

seccomp_data call_of(std::uint32_t number, std::uint64_t first = 0, std::uint64_t second = 0) {
  seccomp_data call{};
  call.nr = static_cast<int>(number);
  call.arch = kNativeArch;
  call.args[0] = first;
  call.args[1] = second;
  return call;
}

// Rules that a random number generator writes: runs of plain verdicts, and conditions on small
// values so that the arguments below meet all of them.
class RandomRules {
 public:
  explicit RandomRules(unsigned seed) : random_(seed) {}

  SyscallRules rules(int limit) {
    SyscallRules rules(kEnosys);
    for (int number = 0; number < limit;) {
      const int length = static_cast<int>(below(3) == 0 ? 1 + below(30) : 1);
      const int last = std::min(number + length, limit) - 1;
      if (below(5) != 0) {
        rules.set_range(number, last, below(3) == 0 ? conditional() : Verdict{action(), {}});
      }
      number = last + 1;
    }
    return rules;
  }

  std::uint64_t argument() {
    constexpr std::uint64_t kTops[] = {0, 0, 1ULL << 32, 2ULL << 32, 1ULL << 63, 0x8000'0000};
    return kTops[below(6)] | below(9);
  }

  std::uint32_t below(std::uint32_t limit) {
    return std::uniform_int_distribution<std::uint32_t>(0, limit - 1)(random_);
  }

 private:
  SeccompAction action() {
    constexpr SeccompAction kActions[] = {kAllowCall, kEperm, kEnosys, fail_with(EACCES),
                                          kKillProcess};
    return kActions[below(5)];
  }

  Condition condition() {
    Condition condition;
    condition.argument = static_cast<Argument>(below(6));
    condition.width = below(2) == 0 ? Width::kLow32 : Width::kFull64;
    condition.membership = below(2) == 0 ? Membership::kIn : Membership::kNotIn;
    constexpr std::uint64_t kMasks[] = {~0ULL, 0xffff'ffff, 7, 0x2'0000'0003, 1ULL << 63, 0};
    condition.mask = kMasks[below(6)];
    for (std::uint32_t count = below(4); count > 0; --count) {
      condition.values.push_back(argument());
    }
    return condition;
  }

  Verdict conditional() {
    Verdict verdict{action(), {}};
    for (std::uint32_t clauses = 1 + below(3); clauses > 0; --clauses) {
      Clause clause{{}, action()};
      for (std::uint32_t conditions = below(4); conditions > 0; --conditions) {
        clause.conditions.push_back(condition());
      }
      verdict.clauses.push_back(clause);
    }
    return verdict;
  }

  std::mt19937 random_;
};

void expect_program_means_rules(const SyscallRules& rules, RandomRules& random, int calls) {
  const SeccompProgram program = compile(rules);
  ASSERT_LE(program.instructions.size(), static_cast<std::size_t>(BPF_MAXINSNS));
  for (std::uint32_t number = 0; number <= 600; ++number) {
    for (int repeat = 0; repeat < calls; ++repeat) {
      seccomp_data call = call_of(number);
      for (auto& argument : call.args) {
        argument = random.argument();
      }
      ASSERT_EQ(evaluate(program, call).value, rules.decide(call).value) << "number " << number;
    }
  }
}

TEST(SeccompTest, ProgramsMeanWhatTheirRulesSay) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomRules random(seed);
    const SyscallRules rules = random.rules(static_cast<int>(1 + random.below(500)));
    expect_program_means_rules(rules, random, 30);
  }
}

TEST(SeccompTest, ProgramsBeyondTheReachOfOneJumpStillMeanTheirRules) {
  SyscallRules rules(kEnosys);
  for (int number = 0; number < 600; ++number) {
    const auto value = static_cast<std::uint32_t>(number);
    rules.set(number, Verdict{fail_with(1 + number % 7),
                              {Clause{{equals(Argument::kSecond, value % 9)}, kAllowCall},
                               Clause{{equals(Argument::kFirst, value)}, fail_with(EXDEV)}}});
  }
  const SeccompProgram program = compile(rules);
  EXPECT_GT(program.instructions.size(), 1000U);
  RandomRules random(1);
  expect_program_means_rules(rules, random, 20);
  EXPECT_EQ(evaluate(program, call_of(599, 599, 8)), fail_with(EXDEV));
  EXPECT_EQ(evaluate(program, call_of(599, 599, 599 % 9)), kAllowCall);
}

TEST(SeccompTest, EmptyRulesGiveTheUnknownActionToEveryNumber) {
  const SeccompProgram program = compile(SyscallRules(kEnosys));
  EXPECT_EQ(evaluate(program, call_of(0)), kEnosys);
  EXPECT_EQ(evaluate(program, call_of(9999)), kEnosys);
}

TEST(SeccompTest, ForeignArchitecturesAreKilled) {
  SyscallRules rules(kEnosys);
  rules.set_range(0, 500, Verdict{kAllowCall, {}});
  seccomp_data call = call_of(20);
  EXPECT_EQ(evaluate(compile(rules), call), kAllowCall);
  call.arch = AUDIT_ARCH_I386;
  EXPECT_EQ(evaluate(compile(rules), call), kKillProcess);
  EXPECT_EQ(rules.decide(call), kKillProcess);
}

TEST(SeccompTest, X32NumbersAreKilledAndTheSkippedCallIsUnknown) {
  if (!kHasX32) {
    GTEST_SKIP() << "this architecture has no x32";
  }
  SyscallRules rules(kEnosys);
  rules.set_range(0, 500, Verdict{kAllowCall, {}});
  const SeccompProgram program = compile(rules);
  for (const std::uint32_t number : {kX32Bit, kX32Bit | 39, kX32Bit | 512, 0xffff'fffeU}) {
    EXPECT_EQ(evaluate(program, call_of(number)), kKillProcess) << number;
    EXPECT_EQ(rules.decide(call_of(number)), kKillProcess) << number;
  }
  EXPECT_EQ(evaluate(program, call_of(kX32Bit - 1)), kEnosys);
  EXPECT_EQ(evaluate(program, call_of(kSkippedCall)), kEnosys);
  EXPECT_EQ(rules.decide(call_of(kSkippedCall)), kEnosys);
}

TEST(SeccompTest, LowComparisonIgnoresTheUpperHalfAndFullComparisonDoesNot) {
  SyscallRules rules(kEnosys);
  rules.set(1, Verdict{kAllowCall, {Clause{{equals(Argument::kFirst, 5)}, kEperm}}});
  rules.set(2, Verdict{kEperm, {Clause{{only_bits(Argument::kFirst, 5)}, kAllowCall}}});
  const SeccompProgram program = compile(rules);
  EXPECT_EQ(evaluate(program, call_of(1, 5)), kEperm);
  EXPECT_EQ(evaluate(program, call_of(1, 5 | 1ULL << 32)), kEperm);
  EXPECT_EQ(evaluate(program, call_of(1, 6)), kAllowCall);
  EXPECT_EQ(evaluate(program, call_of(2, 4)), kAllowCall);
  EXPECT_EQ(evaluate(program, call_of(2, 2)), kEperm);
  EXPECT_EQ(evaluate(program, call_of(2, 4 | 1ULL << 32)), kEperm);
}

TEST(SeccompTest, FirstClauseThatAppliesWins) {
  SyscallRules rules(kEnosys);
  const Condition first_is_one = equals(Argument::kFirst, 1);
  rules.set(1, Verdict{kEnosys,
                       {Clause{{first_is_one, differs(Argument::kSecond, 2)}, kEperm},
                        Clause{{first_is_one}, kAllowCall}}});
  const SeccompProgram program = compile(rules);
  EXPECT_EQ(evaluate(program, call_of(1, 1, 0)), kEperm);
  EXPECT_EQ(evaluate(program, call_of(1, 1, 2)), kAllowCall);
  EXPECT_EQ(evaluate(program, call_of(1, 0, 0)), kEnosys);
}

TEST(SeccompTest, LaterVerdictReplacesTheEarlierOne) {
  SyscallRules rules(kEnosys);
  rules.set_range(0, 10, Verdict{kEperm, {}});
  rules.set(4, Verdict{kAllowCall, {}});
  EXPECT_EQ(rules.decide(call_of(3)), kEperm);
  EXPECT_EQ(rules.decide(call_of(4)), kAllowCall);
  EXPECT_EQ(rules.limit(), 11U);
}

TEST(SeccompTest, EqualVerdictsShareTheirInstructions) {
  const Verdict verdict{kAllowCall, {Clause{{one_of(Argument::kFirst, {1, 5, 9})}, kEperm}}};
  SyscallRules one(kEnosys);
  one.set(10, verdict);
  SyscallRules two(kEnosys);
  two.set(10, verdict);
  two.set(20, verdict);
  EXPECT_EQ(compile(two).instructions.size(), compile(one).instructions.size() + 1);
}

TEST(SeccompTest, EvaluatorKillsWhatTheKernelWouldNotLoad) {
  const auto run = [](std::vector<sock_filter> instructions) {
    return evaluate(SeccompProgram{std::move(instructions)}, call_of(1));
  };
  const sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  EXPECT_EQ(run({allow}), kAllowCall);
  EXPECT_EQ(run({}), kKillProcess);
  EXPECT_EQ(run({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, sizeof(seccomp_data)), allow}), kKillProcess);
  EXPECT_EQ(run({BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), allow}), kKillProcess);
  EXPECT_EQ(run({BPF_STMT(BPF_JMP | BPF_JA, 1), allow}), kKillProcess);
  EXPECT_EQ(run({BPF_STMT(BPF_ST, 0), allow}), kKillProcess);
}

TEST(SeccompTest, ViewCoversTheWholeProgram) {
  const SeccompProgram program = compile(SyscallRules(kEnosys));
  const sock_fprog view = program.view();
  EXPECT_EQ(view.len, program.instructions.size());
  EXPECT_EQ(view.filter, program.instructions.data());
}

}  // namespace
}  // namespace carrel::kernel
