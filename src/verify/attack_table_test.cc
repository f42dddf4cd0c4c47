#include "verify/attack_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "verify/differences.h"
#include "verify/judge.h"

namespace carrel::verify {
namespace {

TEST(AttackTable, NamesAreUniqueAndBeginWithAnIdOfTheCatalogue) {
  std::set<std::string_view> names;
  const std::regex form("[A-Z][0-9]+_[A-Z][A-Za-z0-9]+");
  for (const Attack& attack : attacks()) {
    EXPECT_TRUE(names.insert(attack.name).second) << attack.name;
    EXPECT_TRUE(std::regex_match(std::string(attack.name), form)) << attack.name;
    EXPECT_FALSE(attack.tries.empty()) << attack.name;
    EXPECT_EQ(attack.probe.empty(), attack.manner == Manner::kSession) << attack.name;
  }
}

TEST(AttackTable, EveryGroupHasAttacksAndTheyAreTogether) {
  std::set<Group> seen;
  const Attack* last = nullptr;
  for (const Attack& attack : attacks()) {
    if (last == nullptr || last->group != attack.group) {
      EXPECT_TRUE(seen.insert(attack.group).second) << name_of(attack.group) << " is in two parts";
    }
    last = &attack;
  }
  EXPECT_EQ(seen.size(), groups().size());
}

TEST(AttackTable, GroupsHaveTheNamesThatTheCommandLineOffers) {
  std::string names;
  for (const Group group : groups()) {
    names += (names.empty() ? "" : " ") + std::string(name_of(group));
    EXPECT_EQ(group_named(name_of(group)), group);
  }
  EXPECT_EQ(names, kGroupNames);
  EXPECT_EQ(group_named("file"), std::nullopt);
}

TEST(AttackTable, AGroupOrOneAttackCanBeSelected) {
  const Attack& first = attacks().front();
  const Attack& last = attacks().back();
  EXPECT_TRUE(Selection().has(first));
  EXPECT_TRUE(selection_named(name_of(first.group))->has(first));
  EXPECT_FALSE(selection_named(name_of(first.group))->has(last));
  EXPECT_TRUE(selection_named(last.name)->has(last));
  EXPECT_FALSE(selection_named(last.name)->has(first));
  for (const char* word : {"", "all", "A01", "a01_nocanaryisfoundinthetree"}) {
    EXPECT_FALSE(selection_named(word).has_value()) << word;
  }
}

// What a backend does not promise is said once, where the conformance suite has it.
TEST(AttackTable, DifferencesAreThoseOfTheConformanceSuite) {
  std::ifstream file(CARREL_DIFFERENCES);
  std::set<std::string> published;  // whoever they are for: root's differ wherever somebody's do
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (std::regex_match(
            line, found,
            std::regex("([\\w, -]+) \\| Attack[A-Z]\\.(\\w+)/(?:\\*|root) \\| (.*)"))) {
      published.insert(found[1].str() + "|" + found[2].str() + "|" + found[3].str());
    }
  }
  std::set<std::string> known;
  for (const Difference& one : differences()) {
    // What holds of a runtime holds of it with an engine above.
    const std::string backend(policy::name_of(one.backend));
    const std::string runtime(one.runtime);
    const std::string both = backend + "-" + runtime + ", docker-" + runtime;
    known.insert((runtime.empty() ? backend : both) + "|" + std::string(one.probe) + "|" +
                 std::string(one.reason));
  }
  EXPECT_EQ(known, published);
}

}  // namespace
}  // namespace carrel::verify
