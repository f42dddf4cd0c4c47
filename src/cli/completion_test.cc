#include "cli/completion.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/unique_fd.h"
#include "cli/options.h"
#include "policy/given.h"

namespace carrel::cli {
namespace {

using policy::concat;
using testing::HasSubstr;
using testing::Not;

// A script in a file of its own, run by bash; its output and status.
struct Outcome {
  std::string output;
  int status = -1;
};

Outcome run_bash(std::string_view flags, std::string_view script) {
  std::string path = testing::TempDir() + "carrel-completion-XXXXXX";
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  Outcome outcome;
  if (!write_all(file.get(), script).ok()) {
    return outcome;
  }
  const std::string line =
      "bash --noprofile --norc " + std::string(flags) + " '" + path + "' 2>&1 </dev/null";
  if (FILE* pipe = ::popen(line.c_str(), "re"); pipe != nullptr) {
    std::array<char, 4096> buffer{};
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      outcome.output.append(buffer.data(), count);
    }
    outcome.status = ::pclose(pipe);
  }
  ::unlink(path.c_str());
  return outcome;
}

// What bash offers for the last of these words.
std::string completed(const std::string& words) {
  const std::string script = bash_completion() + "\nCOMP_WORDS=(" + words +
                             ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_carrel\n"
                             "echo \"${COMPREPLY[*]}\"\n";
  return run_bash("", script).output;
}

TEST(CompletionTest, BashAcceptsTheScript) {
  const Outcome outcome = run_bash("-n", bash_completion());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.output, "");
}

TEST(CompletionTest, BashCompletesCommandsOptionsAndTheirWords) {
  EXPECT_EQ(completed("carrel ru"), "run\n");
  EXPECT_EQ(completed("carrel run --mem"), "--memory\n");
  EXPECT_EQ(completed("carrel run --memory ''"), "\n");
  EXPECT_EQ(completed("carrel run --isolation ''"), "namespace gvisor vm\n");
  EXPECT_EQ(completed("carrel run --isolation = n"), "namespace\n");
  EXPECT_EQ(completed("carrel run --isolation ="), "namespace gvisor vm\n");
  EXPECT_EQ(completed("carrel code --lang b"), "bash\n");
  EXPECT_EQ(completed("carrel logs --f"), "--follow --from\n");
  EXPECT_EQ(completed("carrel completion ''"), "bash zsh fish\n");
  EXPECT_EQ(completed("carrel help cre"), "create\n");
  EXPECT_EQ(completed("carrel ls x"), "\n");
  EXPECT_EQ(completed("carrel mount ''"), "check\n");
  EXPECT_EQ(completed("carrel mount --r"), "--rw\n");
  EXPECT_EQ(completed("carrel mount --rw c"), "check\n");
  EXPECT_EQ(completed("carrel mount check /et"), "/etc\n");
}

TEST(CompletionTest, BashCompletesFilesAfterTheDashes) {
  EXPECT_EQ(completed("carrel run -- /et"), "/etc\n");
  EXPECT_EQ(completed("carrel run --config /et"), "/etc\n");
  EXPECT_EQ(completed("carrel run -- --mem"), "\n");
}

TEST(CompletionTest, EveryScriptNamesEveryOptionThatIsOffered) {
  for (const Command& row : commands()) {
    if (row.visibility == Visibility::kHidden) {
      continue;
    }
    EXPECT_THAT(zsh_completion(), HasSubstr(concat({"'", row.name, ":"})));
    EXPECT_THAT(fish_completion(),
                HasSubstr("-n __fish_use_subcommand -a " + std::string(row.name) + " -d '"));
    for (const OfferedOption& option : offered_options(row)) {
      const std::string name(option.name);
      EXPECT_THAT(bash_completion(), HasSubstr("--" + name));
      EXPECT_THAT(zsh_completion(), HasSubstr("--" + name));
      EXPECT_THAT(fish_completion(), HasSubstr("__fish_seen_subcommand_from " +
                                               std::string(row.name) + "' -l " + name));
    }
  }
}

TEST(CompletionTest, HiddenCommandsAndPartsThatAreNotBuiltAreNotOffered) {
  for (const std::string& script : {bash_completion(), zsh_completion(), fish_completion()}) {
    EXPECT_THAT(script, Not(HasSubstr("keeper")));
    EXPECT_THAT(script, Not(HasSubstr("--tier")));
    EXPECT_THAT(script, Not(HasSubstr("-l tier")));
  }
}

// Neither shell has to be there for this: what the scripts use of quotes, arrays, `case` and `if`
// is the same in bash, except for the `end`-less one-liners of fish, which are plain commands.
TEST(CompletionTest, TheOtherScriptsAreWellFormed) {
  for (const std::string& script : {zsh_completion(), fish_completion()}) {
    const Outcome outcome = run_bash("-n", script);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.output, "");
  }
}

TEST(CompletionTest, QuotesAreBalancedInEveryLineOfFish) {
  std::size_t start = 0;
  const std::string script = fish_completion();
  while (start < script.size()) {
    const std::size_t end = script.find('\n', start);
    std::size_t quotes = 0;
    for (std::size_t i = start; i < end; ++i) {
      quotes += script[i] == '\'' && script[i - 1] != '\\' ? 1U : 0U;
    }
    EXPECT_EQ(quotes % 2, 0U) << script.substr(start, end - start);
    start = end + 1;
  }
}

}  // namespace
}  // namespace carrel::cli
