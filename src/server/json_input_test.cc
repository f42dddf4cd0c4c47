#include "server/json_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace carrel::server {
namespace {

using testing::HasSubstr;

std::string why(const std::string& text) {
  auto parsed = parse_json(text);
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(JsonInput, KeyThatIsThereTwiceIsRefused) {
  EXPECT_EQ(why(R"({"a":1,"b":{"a":2}})"), "");
  EXPECT_THAT(why(R"({"a":1,"a":2})"), HasSubstr("'a' is there twice"));
  EXPECT_THAT(why(R"([{"x":{"a":1,"\u0061":2}}])"), HasSubstr("twice"));
}

// G19
TEST(JsonInput, DepthIsBounded) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(why(nested(kDeepestJson)), "");
  EXPECT_THAT(why(nested(kDeepestJson + 1)), HasSubstr("deep"));
  EXPECT_THAT(why(std::string(1'000'000, '[')), HasSubstr("deep"));
  EXPECT_EQ(why(R"(["[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"[["])"), "");
}

// G19
TEST(JsonInput, NumberOfValuesIsBounded) {
  std::string many = "[0";
  for (std::size_t i = 0; i < kMostJsonValues; ++i) {
    many += ",0";
  }
  EXPECT_THAT(why(many + "]"), HasSubstr("values"));
}

// G19
TEST(JsonInput, MembersOfAnObjectAreBounded) {
  const auto object = [](int members) {
    std::string text = "{\"k\":0";
    for (int i = 1; i < members; ++i) {
      text += ",\"" + std::to_string(i) + "\":0";
    }
    return text + "}";
  };
  EXPECT_EQ(why(object(4096)), "");
  EXPECT_THAT(why(object(4097)), HasSubstr("members"));
}

TEST(JsonInput, OnlyWholeDocumentsOfUtf8AreRead) {
  EXPECT_THAT(why("{} {}"), HasSubstr("not JSON"));
  EXPECT_THAT(why("{\"a\":1,}"), HasSubstr("not JSON"));
  EXPECT_THAT(why("\"\xff\""), HasSubstr("UTF-8"));
  EXPECT_THAT(why("\xef\xbb\xbf{}"), HasSubstr("UTF-8"));
  EXPECT_THAT(why("{\"a\":NaN}"), HasSubstr("not JSON"));
}

TEST(Fields, WrongNamesAreToldWithTheNearest) {
  const Json object = Json::parse(R"({"comand":"x"})");
  Fields fields(object);
  (void)fields.needed_text("command");
  EXPECT_THAT(fields.finish().error().message, HasSubstr("did you mean 'command'?"));
}

TEST(Fields, WrongTypesAreTold) {
  const Json object = Json::parse(R"({"a":1,"b":"x","c":-1,"d":[1],"e":0})");
  const auto refusal = [&](auto take) {
    Fields fields(object);
    for (const char* name : {"a", "b", "c", "d", "e"}) {
      fields.allow(name);
    }
    take(fields);
    Status done = fields.finish();
    return done.ok() ? std::string() : done.error().message;
  };
  EXPECT_THAT(refusal([](Fields& f) { (void)f.text("a"); }), HasSubstr("'a' must be a string"));
  EXPECT_THAT(refusal([](Fields& f) { (void)f.flag("b"); }), HasSubstr("true or false"));
  EXPECT_THAT(refusal([](Fields& f) { (void)f.number("c", 9); }), HasSubstr("from 0 to 9"));
  EXPECT_THAT(refusal([](Fields& f) { (void)f.texts("d"); }), HasSubstr("array of strings"));
  EXPECT_THAT(refusal([](Fields& f) { (void)f.duration("e"); }), HasSubstr("seconds"));
  EXPECT_EQ(refusal([](Fields& f) { (void)f.number("a", 1); }), "");
  EXPECT_THAT(refusal([](Fields& f) { (void)f.needed_text("z"); }), HasSubstr("'z' is missing"));
}

TEST(Fields, DurationsAreSecondsOrTexts) {
  const Json object = Json::parse(R"({"a":0.5,"b":"2m"})");
  Fields fields(object);
  EXPECT_EQ(fields.duration("a"), std::chrono::milliseconds(500));
  EXPECT_EQ(fields.duration("b"), std::chrono::minutes(2));
  EXPECT_TRUE(fields.finish().ok());
}

}  // namespace
}  // namespace carrel::server
