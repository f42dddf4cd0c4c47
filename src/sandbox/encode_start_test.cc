#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "protocol/message.h"
#include "sandbox/command.h"

namespace carrel::sandbox {
namespace {

using std::chrono::milliseconds;

CommandRequest exec_request() {
  CommandRequest request;
  request.arguments = {"ls", "-l", ""};
  request.environment = {"A=1"};
  request.workdir = "/workspace";
  return request;
}

CommandRequest shell_request() {
  CommandRequest request;
  request.shell_text = "echo hello";
  request.session = "main";
  return request;
}

Code refusal_of(const CommandRequest& request) {
  const auto encoded = encode_start(request, Input::kNone);
  EXPECT_FALSE(encoded.ok());
  if (encoded.ok()) {
    return Code::kSystem;
  }
  EXPECT_FALSE(encoded.error().message.empty());
  return encoded.error().code;
}

TEST(EncodeStart, GivesWhatTheGuestParses) {
  CommandRequest request = exec_request();
  request.terminal = true;
  request.merged = true;
  request.rows = 50;
  request.columns = 132;
  request.timeout = milliseconds(1234);
  const auto encoded = encode_start(request, Input::kFollows);
  ASSERT_TRUE(encoded.ok());
  protocol::Start start;
  ASSERT_TRUE(protocol::parse_start(encoded.value(), start));
  EXPECT_EQ(start.kind, protocol::StartKind::kExec);
  EXPECT_EQ(start.flags, protocol::kStartAllFlags);
  EXPECT_EQ(start.timeout_ms, 1234U);
  EXPECT_EQ(start.rows, 50);
  EXPECT_EQ(start.columns, 132);
  EXPECT_EQ(start.workdir, "/workspace");
  EXPECT_EQ(start.arguments.count, 3U);
  EXPECT_EQ(start.arguments.data, std::string_view("ls\0-l\0\0", 7));
  EXPECT_EQ(start.environment.data, std::string_view("A=1\0", 4));
}

TEST(EncodeStart, WithoutArgumentsItIsForTheShell) {
  const auto encoded = encode_start(shell_request(), Input::kNone);
  ASSERT_TRUE(encoded.ok());
  protocol::Start start;
  ASSERT_TRUE(protocol::parse_start(encoded.value(), start));
  EXPECT_EQ(start.kind, protocol::StartKind::kShell);
  EXPECT_EQ(start.flags, 0U);
  EXPECT_EQ(start.text, "echo hello");
  EXPECT_EQ(start.session, "main");
}

TEST(EncodeStart, NulIsInvalidEverywhere) {
  const std::string nul("a\0b", 3);
  CommandRequest request = exec_request();
  request.arguments[1] = nul;
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = exec_request();
  request.environment = {"A=" + nul};
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = exec_request();
  request.workdir = "/" + nul;
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = shell_request();
  request.shell_text = nul;
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = shell_request();
  request.session = nul;
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
}

TEST(EncodeStart, WhatIsTooLargeIsAResourceError) {
  CommandRequest request = exec_request();
  request.arguments = std::vector<std::string>(protocol::kMaxArguments + 1, "x");
  EXPECT_EQ(refusal_of(request), Code::kResource);
  request.arguments = {std::string(protocol::kMaxArgument, 'x')};
  EXPECT_EQ(refusal_of(request), Code::kResource);
  request.arguments = std::vector<std::string>(25, std::string(protocol::kMaxArgument - 1, 'x'));
  EXPECT_EQ(refusal_of(request), Code::kResource);
  request = exec_request();
  request.environment = std::vector<std::string>(25, std::string(protocol::kMaxArgument - 1, 'x'));
  EXPECT_EQ(refusal_of(request), Code::kResource);
  // Each within its limit, and too much together.
  request.arguments = std::vector<std::string>(20, std::string(protocol::kMaxArgument - 1, 'x'));
  request.environment = request.arguments;
  EXPECT_EQ(refusal_of(request), Code::kResource);
  request = shell_request();
  request.shell_text = std::string(protocol::kMaxText + 1, 'x');
  EXPECT_EQ(refusal_of(request), Code::kResource);
}

TEST(EncodeStart, LargestRequestsPass) {
  CommandRequest request = exec_request();
  request.arguments = std::vector<std::string>(protocol::kMaxArguments, "x");
  EXPECT_TRUE(encode_start(request, Input::kNone).ok());
  request.arguments = {std::string(protocol::kMaxArgument - 1, 'x')};
  EXPECT_TRUE(encode_start(request, Input::kNone).ok());
  request = shell_request();
  request.shell_text = std::string(protocol::kMaxText, 'x');
  EXPECT_TRUE(encode_start(request, Input::kNone).ok());
}

TEST(EncodeStart, TimeoutThatIsNoneIsInvalid) {
  for (const auto timeout : {milliseconds(0), milliseconds(-1), milliseconds::min(),
                             milliseconds(protocol::kMaxTimeoutMs + 1), milliseconds::max()}) {
    CommandRequest request = exec_request();
    request.timeout = timeout;
    EXPECT_EQ(refusal_of(request), Code::kInvalid) << timeout.count();
  }
}

TEST(EncodeStart, DirectoryAndSessionAreChecked) {
  CommandRequest request = exec_request();
  request.workdir = "relative";
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request.workdir = "/" + std::string(protocol::kMaxPath, 'd');
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = shell_request();
  request.session = std::string(protocol::kMaxName + 1, 's');
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
}

TEST(EncodeStart, RequestIsForAProcessOrForTheShell) {
  CommandRequest request = exec_request();
  request.shell_text = "echo";
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = exec_request();
  request.session = "main";
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = shell_request();
  request.environment = {"A=1"};
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = shell_request();
  request.workdir = "/tmp";
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
  request = shell_request();
  request.terminal = true;
  EXPECT_EQ(refusal_of(request), Code::kInvalid);
}

}  // namespace
}  // namespace carrel::sandbox
