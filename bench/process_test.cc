#include "bench/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace carrel::bench {
namespace {

using testing::HasSubstr;

Launch shell(const std::string& script) {
  Launch launch;
  launch.arguments = {"/bin/sh", "-c", script};
  return launch;
}

TEST(Process, OutputComesWithoutItsLastNewline) {
  auto output = output_of(shell("echo one; echo two"));
  ASSERT_TRUE(output.ok()) << output.error().to_string();
  EXPECT_EQ(output.value(), "one\ntwo");
}

TEST(Process, AFailureNamesTheStatusAndTheLastLineOfStderr) {
  auto output = output_of(shell("echo first >&2; echo reason >&2; exit 3"));
  ASSERT_FALSE(output.ok());
  EXPECT_THAT(output.error().message, HasSubstr("status 3"));
  EXPECT_THAT(output.error().message, HasSubstr("reason"));
}

TEST(Process, AProgramThatIsNotThereIsAnError) {
  Launch launch;
  launch.arguments = {"/nonexistent/program"};
  auto time = time_run(launch);
  ASSERT_FALSE(time.ok());
  EXPECT_EQ(time.error().error_number, ENOENT);
}

TEST(Process, AFailedRunHasNoTimeButItsOwnReason) {
  ASSERT_FALSE(time_run(shell("echo a much longer reason >&2; exit 1")).ok());
  auto time = time_run(shell("echo brief >&2; exit 1"));
  ASSERT_FALSE(time.ok());
  EXPECT_TRUE(time.error().message.ends_with(": brief")) << time.error().message;
}

TEST(Process, NothingOfTheEnvironmentGoesAlong) {
  ASSERT_EQ(::setenv("CARREL_BENCH_TEST", "here", 1), 0);
  Launch launch = shell("echo \"${CARREL_BENCH_TEST-none} $GIVEN\"");
  launch.environment = {"GIVEN=given"};
  auto output = output_of(launch);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output.value(), "none given");
}

TEST(Process, AShellOnAPipeAnswersAgainAndAgain) {
  auto process = PipedProcess::start(shell("while read -r line; do echo \"<$line>\"; done"));
  ASSERT_TRUE(process.ok());
  for (const std::string text : {"one", "two"}) {
    auto answer = process.value().ask(text + "\n", ">\n");
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer.value(), "<" + text + ">\n");
  }
}

TEST(Process, AShellOnAPipeThatEndsIsAnErrorAndNotAHang) {
  auto process = PipedProcess::start(shell("read -r line; exit 0"));
  ASSERT_TRUE(process.ok());
  auto answer = process.value().ask("go\n", "never");
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Code::kGone);
}

TEST(Process, ProgramsAreFoundOnThePath) {
  EXPECT_THAT(find_program("sh"), HasSubstr("/sh"));
  EXPECT_EQ(find_program("no-such-program-anywhere"), "");
}

}  // namespace
}  // namespace carrel::bench
