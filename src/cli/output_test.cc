#include "cli/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cli/args.h"

namespace carrel::cli {
namespace {

using nlohmann::json;

sandbox::ExecResult some_result() {
  sandbox::ExecResult result;
  result.exit_code = 137;
  result.signal = 9;
  result.standard_output = "out\n";
  result.standard_error = "err \"quoted\"\n";
  result.cwd = "/workspace";
  result.oom_killed = true;
  result.truncated = true;
  result.shell_restarted = true;
  result.duration_ms = 1234;
  result.reason = "out of memory";
  return result;
}

TEST(ToJson, HasTheFieldsOfAResultInTheirOrder) {
  EXPECT_EQ(to_json(some_result()),
            R"({"exit_code":137,"signal":9,"stdout":"out\n","stderr":"err \"quoted\"\n",)"
            R"("cwd":"/workspace","success":false,"timed_out":false,"oom_killed":true,)"
            R"("truncated":true,"shell_restarted":true,"duration_ms":1234,)"
            R"("reason":"out of memory","causes":[]})");
}

TEST(ToJson, SuccessAndTimeoutAreSaid) {
  sandbox::ExecResult result;
  EXPECT_EQ(json::parse(to_json(result)).at("success"), true);
  result.timed_out = true;
  EXPECT_EQ(json::parse(to_json(result)).at("success"), false);
  EXPECT_EQ(json::parse(to_json(result)).at("timed_out"), true);
}

TEST(ToJson, BytesThatAreNotUtf8AreReplacedAndKeptInBase64) {
  sandbox::ExecResult result;
  result.standard_output = "\xff\xfe\n";
  const json object = json::parse(to_json(result));
  EXPECT_EQ(object.at("stdout"), "\xef\xbf\xbd\xef\xbf\xbd\n");
  EXPECT_EQ(object.at("stdout_b64"), "//4K");
  EXPECT_FALSE(object.contains("stderr_b64"));
}

TEST(ToJson, Base64IsPaddedForEveryLength) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"\xff", "/w=="},
                                                                  {"\xff\x01", "/wE="},
                                                                  {"\xff\x01\x02", "/wEC"},
                                                                  {"\xff"
                                                                   "abc",
                                                                   "/2FiYw=="}};
  for (const auto& [bytes, text] : cases) {
    sandbox::ExecResult result;
    result.standard_error = bytes;
    EXPECT_EQ(json::parse(to_json(result)).at("stderr_b64"), text);
  }
}

TEST(ToJson, Utf8AndControlBytesSurvive) {
  sandbox::ExecResult result;
  result.standard_output = std::string("\xc3\xa9 \x1b[31m \0 end", 15);
  const json object = json::parse(to_json(result));
  EXPECT_EQ(object.at("stdout").get<std::string>(), result.standard_output);
  EXPECT_FALSE(object.contains("stdout_b64"));
}

TEST(ToJson, IsOneLineWhateverTheOutputIs) {
  sandbox::ExecResult result;
  for (int i = 0; i < 256; ++i) {
    result.standard_output += static_cast<char>(i);
  }
  result.standard_error = "\n\r\n";
  result.cwd = "/a\nb\xff";
  const std::string text = to_json(result);
  EXPECT_EQ(text.find_first_of("\n\r"), std::string::npos);
  EXPECT_EQ(json::parse(text).at("cwd"), "/a\nb\xef\xbf\xbd");
}

TEST(Printable, PlainTextAndUtf8AreLeftAlone) {
  for (const std::string_view text : {"", "plain text", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ControlBytesAreEscaped) {
  EXPECT_EQ(printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(printable("a\rb\nc\td"), "a\\x0db\\x0ac\\x09d");
  EXPECT_EQ(printable(std::string_view("\0\x07\x08\x7f", 4)), "\\x00\\x07\\x08\\x7f");
}

TEST(Printable, ControlsOfMoreThanOneByteAreEscaped) {
  EXPECT_EQ(printable("a\xc2\x9b\xc2\x9b"
                      "2J"),
            "a\\xc2\\x9b\\xc2\\x9b2J");
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "b\xd8\x9c"),
            "\\xe2\\x80\\xaeb\\xd8\\x9c");
  EXPECT_EQ(printable("\xc2\xa0\xd8\xa7\xe2\x80\xa6"), "\xc2\xa0\xd8\xa7\xe2\x80\xa6");
}

TEST(Printable, NoControlByteIsEverLeft) {
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
  }
  for (const char c : printable(all)) {
    const auto byte = static_cast<unsigned char>(c);
    EXPECT_TRUE(byte >= 0x20 && byte != 0x7f) << int{byte};
  }
}

TEST(Printable, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(printable("a\xff"
                      "b\x9b"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
}

TEST(JsonString, IsALiteral) {
  EXPECT_EQ(json_string("a\"b\\c\n"), R"("a\"b\\c\n")");
  EXPECT_EQ(json_string("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

TEST(CodeName, EveryCodeHasAWordOfItsOwn) {
  std::set<std::string_view> names;
  for (const Code code :
       {Code::kInvalid, Code::kNotFound, Code::kConflict, Code::kDenied, Code::kUnsupported,
        Code::kUnavailable, Code::kResource, Code::kTimeout, Code::kGone, Code::kSystem}) {
    names.insert(code_name(code));
  }
  EXPECT_EQ(names.size(), 10U);
}

// The words of one invocation, as far as fail() looks at them.
Arguments arguments_of(const std::vector<std::string_view>& words) {
  const auto command = select_command(words);
  EXPECT_TRUE(command.ok());
  auto arguments = parse_arguments(*command.value(), std::span(words).subspan(1));
  EXPECT_TRUE(arguments.ok());
  return std::move(arguments.value());
}

TEST(Fail, IsOneEscapedLineOnStderr) {
  const Arguments arguments = arguments_of({"run", "true"});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status =
      fail(Context{arguments}, Error{Code::kGone, 0, "the sandbox said \x1b[2J\n", "remove it"});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "carrel: the sandbox said \\x1b[2J\\x0a (remove it)\n");
  EXPECT_EQ(status, 125);
}

TEST(Fail, IsOneJsonObjectOnStdoutWhenAsked) {
  const Arguments arguments = arguments_of({"run", "--json", "true"});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = fail(Context{arguments}, Error{Code::kUnsupported, 0, "no \xff", "hint"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  const json object = json::parse(testing::internal::GetCapturedStdout());
  EXPECT_EQ(object.at("error").at("code"), "unsupported");
  EXPECT_EQ(object.at("error").at("message"), "no \xef\xbf\xbd (hint)");
  EXPECT_EQ(object.at("error").at("hint"), "hint");
  EXPECT_EQ(object.at("exit_code"), status);
}

}  // namespace
}  // namespace carrel::cli
