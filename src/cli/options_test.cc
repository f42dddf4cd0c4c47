#include "cli/options.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::cli {
namespace {

TEST(OptionsTest, CommandsAreInTheOrderOfTheirIds) {
  std::size_t index = 0;
  for (const Command& row : commands()) {
    EXPECT_EQ(static_cast<std::size_t>(row.id), index++) << row.name;
    EXPECT_EQ(&command(row.id), &row);
    EXPECT_EQ(find_command(row.name), &row);
  }
  EXPECT_EQ(find_command("nothing"), nullptr);
}

TEST(OptionsTest, NoCommandHasTwoOptionsOfOneName) {
  for (const Command& row : commands()) {
    std::set<std::string_view> names;
    std::set<char> short_names;
    for (const OfferedOption& offered : offered_options(row)) {
      EXPECT_TRUE(names.insert(offered.name).second) << row.name << " --" << offered.name;
      if (offered.short_name != 0) {
        EXPECT_TRUE(short_names.insert(offered.short_name).second) << row.name;
      }
    }
  }
}

TEST(OptionsTest, ShortOptionsAreFlags) {
  for (const Option& row : options()) {
    EXPECT_TRUE(row.short_name == 0 || row.is_flag()) << row.name;
    EXPECT_EQ(&option(row.id), &row);
  }
}

TEST(OptionsTest, EveryCommandHasHelpJsonAndConfig) {
  for (const Command& row : commands()) {
    for (const OptionId id : {OptionId::kHelp, OptionId::kJson, OptionId::kConfig}) {
      EXPECT_TRUE(option(id).belongs_to(row)) << row.name;
    }
  }
}

TEST(OptionsTest, WhatIsNotBuiltIsTakenButNotOffered) {
  const policy::Setting& tier = *policy::find_setting("tier");
  EXPECT_TRUE(takes_setting(command(CommandId::kRun), tier));
  for (const OfferedOption& offered : offered_options(command(CommandId::kRun))) {
    EXPECT_NE(offered.name, "tier");
  }
  EXPECT_FALSE(takes_setting(command(CommandId::kRun), *policy::find_setting("network_enabled")));
  EXPECT_FALSE(takes_setting(command(CommandId::kList), tier));
}

TEST(OptionsTest, WordsAreSplitAtSpaces) {
  std::vector<std::string> words;
  for_each_word(" a  bc d ", [&](std::string_view word) { words.emplace_back(word); });
  EXPECT_EQ(words, (std::vector<std::string>{"a", "bc", "d"}));
}

}  // namespace
}  // namespace carrel::cli
