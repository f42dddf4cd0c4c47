#include "journal/turn_key.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace carrel::journal {
namespace {

TurnSubject subject() {
  return {"plan",
          "do it",
          {{"report", "1"}},
          "model-a",
          "be kind",
          "[exec]",
          {{"SKILL.md", "first do this"}},
          "sha256:1",
          "{}",
          {"text"},
          "1.0"};
}
TurnPlace where() { return {"store", "flow", "files"}; }

std::string key(const TurnSubject& of, const TurnPlace& at) { return key_of(parts_of(of, at)); }

TEST(TurnKey, ChangesWithEachPartAlone) {
  const std::vector<std::function<void(TurnSubject&, TurnPlace&)>> changes = {
      [](TurnSubject& s, TurnPlace&) { s.step = "act"; },
      [](TurnSubject& s, TurnPlace&) { s.prompt += "."; },
      [](TurnSubject& s, TurnPlace&) { s.inputs[0].value = "2"; },
      [](TurnSubject& s, TurnPlace&) { s.inputs[0].name = "result"; },
      [](TurnSubject& s, TurnPlace&) { s.inputs.push_back({"more", ""}); },
      [](TurnSubject& s, TurnPlace&) { s.model = "model-b"; },
      [](TurnSubject& s, TurnPlace&) { s.system_prompt = "be brief"; },
      [](TurnSubject& s, TurnPlace&) { s.tools = "[]"; },
      [](TurnSubject& s, TurnPlace&) { s.skills[0].value += "\n"; },
      [](TurnSubject& s, TurnPlace&) { s.image = "sha256:2"; },
      [](TurnSubject& s, TurnPlace&) { s.policy = "{\"network\":true}"; },
      [](TurnSubject& s, TurnPlace&) { s.kinds = {"json"}; },
      [](TurnSubject& s, TurnPlace&) { s.code_version = "1.1"; },
      [](TurnSubject&, TurnPlace& p) { p.store = "other"; },
      [](TurnSubject&, TurnPlace& p) { p.flow = "other"; },
      [](TurnSubject&, TurnPlace& p) { p.files = "other"; }};
  std::set<std::string> keys = {key(subject(), where())};
  for (const auto& change : changes) {
    TurnSubject changed = subject();
    TurnPlace at = where();
    change(changed, at);
    keys.insert(key(changed, at));
    const auto differs = compare_parts(record_parts(parts_of(subject(), where())),
                                       record_parts(parts_of(changed, at)));
    EXPECT_FALSE(differs.empty());
  }
  EXPECT_EQ(keys.size(), changes.size() + 1);
}

TEST(TurnKey, TheOrderOfInputsDoesNotCount) {
  TurnSubject one = subject();
  one.inputs = {{"a", "1"}, {"b", "2"}};
  TurnSubject other = subject();
  other.inputs = {{"b", "2"}, {"a", "1"}};
  EXPECT_EQ(key(one, where()), key(other, where()));
}

TEST(TurnKey, TextCannotMoveFromOnePartToTheNext) {
  EXPECT_NE(key_of({{"a", "1"}, {"b", "2"}}), key_of({{"a", "11:b1:2"}}));
  EXPECT_NE(key_of({{"a", "12"}, {"b", ""}}), key_of({{"a", "1"}, {"b", "2"}}));
}

TEST(TurnKey, TheRecordOfPartsNamesTheOneThatChanged) {
  TurnSubject changed = subject();
  changed.skills[0].value = "something else";
  const auto before = parts_from_json(parts_to_json(record_parts(parts_of(subject(), where()))));
  ASSERT_TRUE(before.ok());
  const auto changes = compare_parts(before.value(), record_parts(parts_of(changed, where())));
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].name, "skill SKILL.md");
  EXPECT_EQ(changes[0].before, "first do this");
  EXPECT_EQ(changes[0].now, "something else");
}

TEST(TurnKey, AddedAndRemovedPartsAreTold) {
  const auto changes =
      compare_parts(record_parts({{"a", "1"}, {"b", "2"}}), record_parts({{"b", "2"}, {"c", "3"}}));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].kind, PartChange::Kind::kAdded);
  EXPECT_EQ(changes[1].kind, PartChange::Kind::kRemoved);
}

TEST(TurnKey, ThePreviewOfASecretIsNotKept) {
  const auto parts = record_parts({{"input api_key", "hush"}, {"policy", R"({"token":"hush"})"}});
  for (const RecordedPart& part : parts) {
    EXPECT_EQ(part.preview.find("hush"), std::string::npos) << part.name;
  }
}

TEST(TurnKey, ADamagedRecordOfPartsIsAnError) {
  for (const char* text : {"", "[", "[1]", "[{}]", R"([{"name":"a","sha256":"x"}])"}) {
    EXPECT_FALSE(parts_from_json(text).ok()) << text;
  }
}

}  // namespace
}  // namespace carrel::journal
