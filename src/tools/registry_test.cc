#include "tools/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/observation.h"

namespace carrel::tools {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kSchema[] = R"({"type":"object","properties":{
    "text":{"type":"string","maxLength":5},"count":{"type":"integer","minimum":1},
    "kind":{"type":"string","enum":["a","b"]}},
    "required":["text"],"additionalProperties":false})";

class Echo final : public Tool {
 public:
  explicit Echo(std::string name, std::string answer = {})
      : Tool({std::move(name), "says it again", kSchema}), answer_(std::move(answer)) {}
  Result<ToolResult> call(const Json& arguments, const Cancel& /*cancel*/) override {
    ++calls;
    return ToolResult{.output =
                          answer_.empty() ? arguments.at("text").get<std::string>() : answer_};
  }
  int calls = 0;

 private:
  std::string answer_;
};

class RegistryTest : public testing::Test {
 protected:
  std::string error_of(std::string_view name, std::string_view arguments) {
    auto result = registry_.call(name, arguments, cancel_);
    return result.ok() ? result->error : result.error().to_string();
  }
  Registry registry_;
  Cancel cancel_;
};

TEST_F(RegistryTest, ANameIsOneToolsAlone) {
  ASSERT_TRUE(registry_.add(std::make_unique<Echo>("echo")).ok());
  const Status again = registry_.add(std::make_unique<Echo>("echo"));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kConflict);
  EXPECT_THAT(again.error().message, HasSubstr("two tools with the name 'echo'"));
}

TEST_F(RegistryTest, NothingIsAddedToOneThatIsClosed) {
  registry_.close();
  const Status late = registry_.add(std::make_unique<Echo>("late"));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kConflict);
  EXPECT_EQ(registry_.find("late"), nullptr);
}

TEST_F(RegistryTest, DefinitionsAreInTheFormOfFunctionCalls) {
  ASSERT_TRUE(registry_.add(std::make_unique<Echo>("echo")).ok());
  const auto definitions = registry_.definitions();
  ASSERT_EQ(definitions.size(), 1U);
  EXPECT_EQ(definitions[0]->name, "echo");
  EXPECT_FALSE(definitions[0]->description.empty());
  EXPECT_TRUE(check_parameters(Json::parse(definitions[0]->parameters)).ok());
}

TEST_F(RegistryTest, WrongArgumentsAreNamedAndNothingIsCalled) {
  auto tool = std::make_unique<Echo>("echo");
  const Echo& echo = *tool;
  ASSERT_TRUE(registry_.add(std::move(tool)).ok());
  EXPECT_THAT(error_of("echo", "{}"), HasSubstr("echo needs 'text'"));
  EXPECT_THAT(error_of("echo", R"({"text":"x","cuont":1})"), HasSubstr("did you mean 'count'?"));
  EXPECT_THAT(error_of("echo", R"({"text":7})"), HasSubstr("'text' must be a string, not 7"));
  EXPECT_THAT(error_of("echo", R"({"text":"x","count":0})"), HasSubstr("less than 1"));
  EXPECT_THAT(error_of("echo", R"({"text":"toolong"})"), HasSubstr("more than 5 characters"));
  EXPECT_THAT(error_of("echo", R"({"text":"x","kind":"c"})"), HasSubstr("one of a, b"));
  EXPECT_EQ(echo.calls, 0);
}

TEST_F(RegistryTest, ArgumentsThatAreNoJsonAreAnAnswerAndNoCrash) {
  ASSERT_TRUE(registry_.add(std::make_unique<Echo>("echo")).ok());
  for (const char* text : {"{", "[]", "null", "\"text\"", "{\"text\":\"a\"} x", "\xff\xfe",
                           "{\"text\":\"a\",\"text\":\"b\"}"}) {
    EXPECT_NE(error_of("echo", text), "") << text;
  }
  EXPECT_NE(error_of("echo", std::string(100'000, '[')), "");
  EXPECT_NE(error_of("echo", std::string(kLongestArguments + 1, ' ')), "");
}

TEST_F(RegistryTest, AnUnknownToolIsAnAnswer) {
  ASSERT_TRUE(registry_.add(std::make_unique<Echo>("echo")).ok());
  EXPECT_THAT(error_of("ecoh", "{}"), HasSubstr("there is no tool 'ecoh' (did you mean 'echo'?)"));
}

TEST_F(RegistryTest, LongAnswersAreCut) {
  ASSERT_TRUE(registry_.add(std::make_unique<Echo>("echo", std::string(50'000, 'x'))).ok());
  auto result = registry_.call("echo", R"({"text":"a"})", cancel_);
  ASSERT_TRUE(result.ok());
  EXPECT_LT(result->output.size(), kLongestObservation + 100);
  EXPECT_THAT(result->output, HasSubstr("40000 characters are left out here"));
}

TEST(SchemaTest, WhatCannotBeEnforcedIsRefused) {
  for (const char* text : {R"({"type":"string"})", R"({"type":"object","oneOf":[]})",
                           R"({"type":"object","properties":{"a":{"pattern":"x"}}})",
                           R"({"type":"object","required":"a"})"}) {
    EXPECT_FALSE(check_parameters(Json::parse(text)).ok()) << text;
  }
}

TEST(ObservationTest, TwoHundredLinesAreShownOfFiveHundred) {
  std::string text;
  for (int i = 1; i <= 500; ++i) {
    text += std::to_string(i) + "\n";
  }
  const Observation seen = cut_output(text);
  EXPECT_TRUE(seen.cut);
  EXPECT_EQ(std::count(seen.text.begin(), seen.text.end(), '\n'), 201);
  EXPECT_THAT(seen.text, HasSubstr("100\n[... 300 of 500 lines are left out here ...]\n401\n"));
  EXPECT_TRUE(seen.text.ends_with("500\n"));
}

TEST(ObservationTest, ALongLineIsCutAfterTwoThousandBytes) {
  const Observation seen = cut_output(std::string(1'000'000, 'x'));
  EXPECT_TRUE(seen.cut);
  EXPECT_EQ(seen.text, std::string(2000, 'x') + "... [998000 more bytes in this line]");
}

TEST(ObservationTest, ACharacterIsNeverCutInTwo) {
  std::string text(1999, 'x');
  text += "\xc3\xa4 and more";
  EXPECT_TRUE(cut_output(text).text.starts_with(std::string(1999, 'x') + "..."));
  std::string many;
  for (int i = 0; i < 20'000; ++i) {
    many += "\xc3\xa4";
  }
  const Observation seen = cut_observation(many);
  EXPECT_TRUE(seen.cut);
  EXPECT_EQ(Json(seen.text).dump().find("\\ufffd"), std::string::npos);
}

TEST(ObservationTest, WhatFitsStaysAsItIs) {
  EXPECT_FALSE(cut_output("a\nb").cut);
  EXPECT_EQ(cut_output("a\nb").text, "a\nb");
  EXPECT_EQ(cut_observation("short").text, "short");
}

}  // namespace
}  // namespace carrel::tools
