#include "sandbox/exec_result.h"

#include <gtest/gtest.h>

namespace carrel::sandbox {
namespace {

ExecResult with_streams(std::string out, std::string err) {
  ExecResult result;
  result.standard_output = std::move(out);
  result.standard_error = std::move(err);
  result.duration_ms = 1500;
  return result;
}

TEST(ExecResult, SuccessIsRenderedAsStdoutAlone) {
  EXPECT_EQ(render(with_streams("42\n", "a warning\n")), "42\n");
  EXPECT_EQ(render(with_streams("", "a warning\n")), "");
}

TEST(ExecResult, OutputOfASuccessIsExact) {
  EXPECT_EQ(render(with_streams("a\n\n b", "")), "a\n\n b");
  EXPECT_EQ(render(with_streams("x$ ", "")), "x$ ");
}

TEST(ExecResult, FailureIsRenderedAsALineWithTheExitCodeAndBothStreams) {
  ExecResult result = with_streams("partial\n", "No such file\n");
  result.exit_code = 2;
  EXPECT_EQ(render(result), "exit code 2\npartial\nNo such file\n");
  result.reason = "exit status 2";
  EXPECT_EQ(render(result), "exit code 2 (exit status 2)\npartial\nNo such file\n");
}

TEST(ExecResult, StreamsOfAFailureBeginOnLinesOfTheirOwn) {
  ExecResult result = with_streams("no newline", "neither here");
  result.exit_code = 1;
  EXPECT_EQ(render(result), "exit code 1\nno newline\nneither here");
}

TEST(ExecResult, ReachedProcessLimitIsPartOfTheReasonOfAFailure) {
  ExecResult result;
  add_process_limit(result, 50);
  EXPECT_EQ(result.reason, "");
  result.exit_code = 1;
  result.reason = "exit status 1";
  add_process_limit(result, 50);
  EXPECT_EQ(result.reason, "exit status 1; the limit of 50 processes was reached");
}

TEST(ExecResult, CausesAreOfAFailureAndOneOfAKind) {
  ExecResult result;
  add_memory_limit(result, 64U << 20);
  add_no_network(result);
  EXPECT_TRUE(result.causes.empty());
  result.exit_code = 137;
  add_cause(result, {"memory", "out of memory", "--memory"});
  add_memory_limit(result, 64U << 20);
  add_no_network(result);
  ASSERT_EQ(result.causes.size(), 2U);
  EXPECT_EQ(result.causes[0].message, "out of memory: the limit is 64 MiB");
  EXPECT_EQ(result.causes[1].kind, "no_network");
}

TEST(ExecResult, FailureWithoutOutputIsOneLine) {
  ExecResult result;
  result.exit_code = 137;
  result.signal = 9;
  result.reason = "ended by signal 9 (SIGKILL)";
  EXPECT_EQ(render(result), "exit code 137 (ended by signal 9 (SIGKILL))");
}

TEST(ExecResult, TimeoutIsRenderedAsATimedOutLineAndBothStreams) {
  ExecResult result = with_streams("1\n", "still here\n");
  result.exit_code = kExitTimeout;
  result.timed_out = true;
  result.reason = "timed out";
  EXPECT_EQ(render(result), "timed out after 1500 ms\n1\nstill here\n");
}

TEST(ExecResult, TimeoutIsNoSuccessWhateverTheExitCode) {
  ExecResult result = with_streams("1\n", "");
  result.timed_out = true;
  EXPECT_FALSE(result.success());
  EXPECT_EQ(render(result), "timed out after 1500 ms\n1\n");
}

TEST(ExecResult, OnlyExitCodeZeroIsSuccess) {
  ExecResult result;
  EXPECT_TRUE(result.success());
  for (const int code : {1, 2, 124, 125, 126, 127, 137, 255}) {
    result.exit_code = code;
    EXPECT_FALSE(result.success()) << code;
  }
}

}  // namespace
}  // namespace carrel::sandbox
