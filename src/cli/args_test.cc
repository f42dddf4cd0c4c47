#include "cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace carrel::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Words = std::vector<std::string_view>;

// The words with the command's name first, as main() has them.
Result<Arguments> parse(const Words& words) {
  CARREL_ASSIGN(const Command* command, select_command(words));
  return parse_arguments(*command, std::span(words).subspan(1));
}

std::string error_of(const Words& words) {
  const auto result = parse(words);
  return result.ok() ? "(no error)" : result.error().to_string();
}

TEST(ArgsTest, OptionsTakeTheirValueEitherWay) {
  for (const Words& words :
       {Words{"run", "--memory", "1g", "--", "ls", "-l"}, Words{"run", "--memory=1g", "ls", "-l"},
        Words{"run", "--memory-limit=1g", "--", "ls", "-l"}}) {
    const auto result = parse(words);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    policy::Spec spec;
    ASSERT_TRUE(apply_settings(result.value(), spec).ok());
    EXPECT_EQ(spec.limits.memory_bytes, 1ULL << 30);
    EXPECT_THAT(result.value().command_line, ElementsAre("ls", "-l"));
    EXPECT_TRUE(result.value().has_setting("memory"));
    EXPECT_FALSE(result.value().has_setting("cpus"));
  }
}

TEST(ArgsTest, OptionsEndAtTheCommand) {
  const auto run = parse({"run", "-t", "ls", "--json", "-t", "--", "x"});
  ASSERT_TRUE(run.ok()) << run.error().to_string();
  EXPECT_TRUE(run.value().has(OptionId::kTty));
  EXPECT_FALSE(run.value().has(OptionId::kJson));
  EXPECT_THAT(run.value().command_line, ElementsAre("ls", "--json", "-t", "--", "x"));
}

TEST(ArgsTest, OptionsOfExecCanFollowTheId) {
  for (const Words& words : {Words{"exec", "box", "--timeout", "5", "--", "ls", "--json"},
                             Words{"exec", "--timeout=5", "box", "ls", "--json"},
                             Words{"exec", "--timeout", "5", "--", "box", "ls", "--json"},
                             Words{"exec", "--timeout", "5", "--", "box", "--", "ls", "--json"}}) {
    const auto result = parse(words);
    ASSERT_TRUE(result.ok()) << result.error().to_string();
    EXPECT_THAT(result.value().operands, ElementsAre("box"));
    EXPECT_THAT(result.value().command_line, ElementsAre("ls", "--json"));
    EXPECT_TRUE(result.value().has_setting("timeout"));
    EXPECT_FALSE(result.value().has(OptionId::kJson));
  }
}

TEST(ArgsTest, OnlyOneDoubleDashIsTakenAway) {
  EXPECT_THAT(parse({"run", "--", "--", "x"}).value().command_line, ElementsAre("--", "x"));
  EXPECT_THAT(parse({"exec", "box", "--", "--", "x"}).value().command_line, ElementsAre("--", "x"));
  EXPECT_THAT(parse({"sh", "box", "--", "--json"}).value().operands, ElementsAre("box", "--json"));
}

TEST(ArgsTest, OptionsOfOtherCommandsCanStandAnywhere) {
  const auto result = parse({"sh", "box", "make -j2", "--timeout", "5", "--session=two", "--json"});
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_THAT(result.value().operands, ElementsAre("box", "make -j2"));
  EXPECT_EQ(result.value().value(OptionId::kSession), "two");
  EXPECT_TRUE(result.value().has(OptionId::kJson));
  EXPECT_THAT(result.value().command_line, IsEmpty());
  EXPECT_THAT(parse({"code", "-"}).value().operands, ElementsAre("-"));
  EXPECT_TRUE(parse({"logs", "-f", "box"}).value().has(OptionId::kFollow));
}

TEST(ArgsTest, VariablesCanBeGivenAgain) {
  const auto result = parse({"run", "--env", "A=1", "--env=B=2", "--env", "A=-3", "true"});
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  policy::Spec spec;
  ASSERT_TRUE(apply_settings(result.value(), spec).ok());
  ASSERT_EQ(spec.environment.size(), 2U);
  EXPECT_EQ(spec.environment[0].value, "-3");
  EXPECT_EQ(spec.environment[1].value, "2");
}

TEST(ArgsTest, SettingsGoOverWhatWasThere) {
  policy::Spec spec;
  spec.limits.memory_bytes = 100ULL << 20;
  spec.limits.pids = 7;
  ASSERT_TRUE(apply_settings(parse({"run", "--memory", "200m", "x"}).value(), spec).ok());
  EXPECT_EQ(spec.limits.memory_bytes, 200ULL << 20);
  EXPECT_EQ(spec.limits.pids, 7U);
}

TEST(ArgsTest, BadUsageIsOneLineThatSaysWhatIsWrong) {
  const struct {
    Words words;
    std::string_view message;
  } kTable[] = {
      {{"run"}, "run needs a command to run"},
      {{"run", "--"}, "run needs a command to run"},
      {{"run", "--", ""}, "the name of the command to run is empty"},
      {{"run", ""}, "the name of the command to run is empty"},
      {{"run", "--memroy", "1g", "x"}, "unknown option '--memroy'; did you mean '--memory'?"},
      {{"run", "--mem", "1g", "x"}, "did you mean '--memory'?"},
      {{"run", "--xyzzy", "x"}, "unknown option '--xyzzy' (try 'carrel run --help')"},
      {{"run", "-x", "x"}, "unknown option '-x'"},
      {{"run", "-tx", "x"}, "unknown option '-tx'"},
      {{"run", "--\xff\n", "x"}, "unknown option '--\\xff\\n'"},
      {{"run", "--=x", "x"}, "unknown option '--'"},
      {{"run", "--memory"}, "'--memory' needs a value: --memory SIZE"},
      {{"run", "--memory="}, "'--memory' needs a value"},
      {{"run", "--memory", "", "x"}, "'--memory' needs a value"},
      {{"run", "--memory", "--cpus", "1", "x"}, "'--memory' needs a value"},
      {{"run", "--memory", "--", "x"}, "'--memory' needs a value"},
      {{"run", "--memory", "1g", "--memory", "2g", "x"}, "'--memory' is given twice"},
      {{"run", "--memory", "1g", "--memory-limit=2g", "x"}, "'--memory-limit' is given twice"},
      {{"run", "-t", "--tty", "x"}, "'--tty' is given twice"},
      {{"run", "--json=1", "x"}, "'--json' takes no value"},
      {{"run", "--writable-root=no", "x"}, "'--writable-root' takes no value"},
      {{"run", "--memory", "1.5.2g", "x"}, "--memory '1.5.2g': not a size"},
      {{"run", "--memory", "-1", "x"}, "--memory '-1': a size cannot be negative"},
      {{"run", "--memory", "5m", "x"}, "a sandbox needs at least 6m"},
      {{"run", "--network-enabled", "x"}, "unknown option '--network-enabled'"},
      {{"run", "--follow", "x"}, "run has no option '--follow'; it belongs to logs"},
      {{"ls", "--memory", "1g"}, "ls has no option '--memory'; it belongs to run, code, create"},
      {{"ls", "x"}, "unexpected word 'x'"},
      {{"sh", "box"}, "sh needs COMMAND"},
      {{"sh"}, "sh needs ID"},
      {{"sh", "box", "ls", "more"}, "unexpected word 'more'; quote the command as one word"},
      {{"sh", "../box", "ls"}, "ID '../box': not a name"},
      {{"exec", "box"}, "exec needs a command to run"},
      {{"exec"}, "exec needs ID"},
      {{"info", ""}, "ID '': not a name"},
      {{"rm"}, "rm needs either the ID of a sandbox or --all"},
      {{"rm", "--all", "box"}, "rm needs either"},
      {{"rm", "a", "b/c"}, "ID 'b/c': not a name"},
      {{"create", "--name", "a b"}, "--name 'a b': not a name"},
      {{"create", "--lease", "0"}, "--lease '0': a duration cannot be zero"},
      {{"logs", "--from", "-1", "box"}, "--from '-1'"},
      {{"logs", "--command", "0", "box"}, "--command '0'"},
      {{"code", "--lang", "ruby", "-"}, "--lang 'ruby': unknown language"},
      {{"code", ""}, "the name of the file is empty"},
      {{"completion", "tcsh"}, "unknown shell 'tcsh'"},
      {{"help", "rnu"}, "unknown command 'rnu'; did you mean 'run'?"},
      {{"frobnicate"}, "unknown command 'frobnicate' (try 'carrel help')"},
      {{"exce"}, "unknown command 'exce'; did you mean 'exec'?"},
      {{""}, "unknown command ''"},
      {{"--json", "ls"}, "a command comes first, then options like '--json'"},
  };
  for (const auto& row : kTable) {
    const auto result = parse(row.words);
    ASSERT_FALSE(result.ok()) << row.message;
    EXPECT_EQ(result.error().code, Code::kInvalid) << row.message;
    EXPECT_THAT(result.error().to_string(), HasSubstr(std::string(row.message)));
    EXPECT_THAT(result.error().to_string(), Not(HasSubstr("\n")));
  }
}

TEST(ArgsTest, HugeWordsGiveShortErrors) {
  const std::string huge(1 << 20, 'x');
  const std::string option = "--" + huge;
  EXPECT_LT(error_of({huge}).size(), 300U);
  EXPECT_LT(error_of({"run", option, "x"}).size(), 300U);
  EXPECT_LT(error_of({"run", "--memory", huge, "x"}).size(), 300U);
  EXPECT_LT(error_of({"info", huge}).size(), 300U);
}

TEST(ArgsTest, HelpNeedsNoOtherWords) {
  for (const Command& row : commands()) {
    for (const std::string_view word : {"--help", "-h"}) {
      const auto result = parse({row.name, word});
      ASSERT_TRUE(result.ok()) << row.name << ": " << result.error().to_string();
      EXPECT_TRUE(result.value().has(OptionId::kHelp));
    }
  }
  EXPECT_EQ(select_command(Words{"--help"}).value()->id, CommandId::kHelp);
  EXPECT_EQ(select_command(Words{"-V"}).value()->id, CommandId::kVersion);
  EXPECT_FALSE(select_command(Words{}).ok());
}

TEST(ArgsTest, WhatIsNotBuiltIsRefusedAndNeverIgnored) {
  for (const Words& words :
       {Words{"create", "--tier", "low"}, Words{"code", "--backend", "kubernetes", "-"}}) {
    const auto result = parse(words);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::kUnavailable);
    EXPECT_THAT(result.error().message, HasSubstr("not built yet"));
    EXPECT_EQ(status_of(*find_command(words[0]), result.error()), 125);
  }
}

TEST(ArgsTest, WrongUsageHasTheStatusOfItsCommand) {
  const Error wrong{Code::kInvalid, 0, "x", {}};
  for (const std::string_view name : {"run", "code", "sh", "exec"}) {
    EXPECT_EQ(status_of(*find_command(name), wrong), 125) << name;
  }
  for (const std::string_view name : {"create", "ls", "info", "rm", "logs", "attach", "help"}) {
    EXPECT_EQ(status_of(*find_command(name), wrong), 2) << name;
  }
}

}  // namespace
}  // namespace carrel::cli
