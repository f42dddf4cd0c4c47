#include "cli/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace carrel::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

void expect_fits(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80U) << line;
    EXPECT_FALSE(line.ends_with(' ')) << "'" << line << "'";
  }
  EXPECT_TRUE(text.ends_with('\n'));
}

TEST(HelpTest, EverythingFitsEightyColumns) {
  expect_fits(program_help());
  for (const Command& row : commands()) {
    expect_fits(command_help(row));
  }
}

TEST(HelpTest, TheProgramsHelpNamesEveryCommandButHiddenOnes) {
  for (const Command& row : commands()) {
    const std::string line = "\n  " + std::string(row.name) + " ";
    if (row.visibility == Visibility::kListed) {
      EXPECT_THAT(program_help(), HasSubstr(line));
    } else {
      EXPECT_THAT(program_help(), Not(HasSubstr(line)));
    }
  }
}

TEST(HelpTest, ACommandsHelpNamesEveryOptionItOffers) {
  for (const Command& row : commands()) {
    const std::string text = command_help(row);
    for (const OfferedOption& option : offered_options(row)) {
      EXPECT_THAT(text, HasSubstr("--" + std::string(option.name)));
    }
    EXPECT_THAT(text, Not(HasSubstr("--tier")));
  }
}

TEST(HelpTest, UsageShowsWhatIsOptionalAndWhatRepeats) {
  EXPECT_EQ(usage_line(command(CommandId::kRun)), "carrel run [OPTIONS] [--] COMMAND [ARG...]");
  EXPECT_EQ(usage_line(command(CommandId::kExec)),
            "carrel exec [OPTIONS] ID [--] COMMAND [ARG...]");
  EXPECT_EQ(usage_line(command(CommandId::kShell)), "carrel sh [OPTIONS] ID COMMAND");
  EXPECT_EQ(usage_line(command(CommandId::kRemove)), "carrel rm [OPTIONS] [ID...]");
  EXPECT_EQ(usage_line(command(CommandId::kHelp)), "carrel help [OPTIONS] [COMMAND]");
}

TEST(HelpTest, ALabelThatIsTooLongHasALineOfItsOwn) {
  EXPECT_EQ(described("a", "text", 6), "  a   text\n");
  EXPECT_EQ(described("abcdef", "text", 6), "  abcdef\n      text\n");
}

TEST(HelpTest, ExamplesAreLinesThatCanBeCopied) {
  EXPECT_THAT(command_help(command(CommandId::kRun)),
              HasSubstr("\n  carrel run -- python3 -c 'print(42)'\n"));
  EXPECT_THAT(command_help(command(CommandId::kRun)), StartsWith("Usage: carrel run "));
}

}  // namespace
}  // namespace carrel::cli
