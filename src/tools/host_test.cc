#include "tools/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/patience.h"
#include "tools/exec.h"
#include "tools/file_tools.h"
#include "tools/host_program.h"
#include "tools/registry.h"
#include "tools/services.h"
#include "tools/skills.h"
#include "tools/toolbox.h"

namespace carrel::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

class HostTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tools.XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ + "/" + path).parent_path());
    std::ofstream(folder_ + "/" + path) << text;
  }
  std::string get(const std::string& path) const {
    std::ifstream file(folder_ + "/" + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  ToolResult call(const std::string& tool, const Json& arguments) {
    if (files_ == nullptr) {
      files_ = std::move(HostFiles::open(folder_).value());
      commands_ = std::make_unique<HostCommands>(folder_);
      Surroundings with;
      with.commands = commands_.get();
      with.files = files_.get();
      EXPECT_TRUE(add_tools({"files", "exec", "run_code"}, with, registry_).ok());
    }
    auto result = registry_.call(tool, arguments.dump(), cancel_);
    EXPECT_TRUE(result.ok());
    return result.ok() ? result.value() : ToolResult{};
  }

  std::string folder_;
  Cancel cancel_;
  Registry registry_;
  std::unique_ptr<HostFiles> files_;
  std::unique_ptr<HostCommands> commands_;
};

TEST_F(HostTest, ACreatedFileIsNotCreatedTwiceAndMayBeEmpty) {
  EXPECT_EQ(call("create_file", {{"file_path", "a/b/c.txt"}, {"file_contents", ""}}).error, "");
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/a/b/c.txt"));
  EXPECT_EQ(static_cast<int>(std::filesystem::status(folder_ + "/a/b").permissions()) & 0777, 0755);
  EXPECT_THAT(call("create_file", {{"file_path", "a/b/c.txt"}, {"file_contents", "x"}}).error,
              HasSubstr("exists already"));
}

TEST_F(HostTest, ReplacingNeedsExactlyOneOccurrence) {
  put("Makefile", "all:\n\tcc a.c\n\tcc b.c\n");
  EXPECT_THAT(
      call("str_replace", {{"file_path", "Makefile"}, {"old_str", "cc"}, {"new_str", ""}}).error,
      HasSubstr("2 times in 'Makefile', on lines 2, 3"));
  EXPECT_THAT(
      call("str_replace", {{"file_path", "Makefile"}, {"old_str", "    cc a"}, {"new_str", ""}})
          .error,
      HasSubstr("was not found"));
  EXPECT_EQ(
      call("str_replace", {{"file_path", "Makefile"}, {"old_str", "\tcc a.c\n"}, {"new_str", ""}})
          .error,
      "");
  EXPECT_EQ(get("Makefile"), "all:\n\tcc b.c\n");
}

TEST_F(HostTest, RewritingNeedsAFileAndDeletingRemovesIt) {
  EXPECT_THAT(call("full_file_rewrite", {{"file_path", "x"}, {"file_contents", "y"}}).error,
              HasSubstr("does not exist"));
  put("x", "old");
  EXPECT_EQ(call("full_file_rewrite", {{"file_path", "x"}, {"file_contents", "y"}}).error, "");
  EXPECT_EQ(get("x"), "y");
  EXPECT_EQ(call("delete_file", {{"file_path", "/workspace/x"}}).error, "");
  EXPECT_THAT(call("delete_file", {{"file_path", "x"}}).error, HasSubstr("does not exist"));
}

TEST_F(HostTest, LinesThreeToFiveAreRead) {
  put("f", "1\n2\n3\n4\n5\n6\n");
  EXPECT_EQ(call("read_file", {{"file_path", "f"}, {"start_line", 3}, {"end_line", 5}}).output,
            "3\n4\n5\n");
}

TEST_F(HostTest, AListingLeavesOutWhatToolsFillByWholeNames) {
  put("rebuild/a.c", "x");
  put("build/b.o", "x");
  put("node_modules/m/i.js", "x");
  const std::string listed = call("list_files", Json::object()).output;
  EXPECT_THAT(listed, HasSubstr("rebuild/a.c"));
  EXPECT_THAT(listed, Not(HasSubstr("b.o")));
  EXPECT_THAT(listed, Not(HasSubstr("node_modules")));
}

TEST_F(HostTest, ALinkOutOfTheFolderIsNotFollowed) {
  std::filesystem::create_symlink("/etc", folder_ + "/out");
  EXPECT_THAT(call("read_file", {{"file_path", "out/passwd"}}).error, HasSubstr("link"));
  EXPECT_NE(call("create_file", {{"file_path", "out/x"}, {"file_contents", "x"}}).error, "");
  EXPECT_FALSE(std::filesystem::exists("/etc/x"));
}

TEST_F(HostTest, ExecSaysWhereItRunsAndHowItEnded) {
  const ToolResult good = call("exec", {{"command", "echo out; echo err >&2"}});
  EXPECT_EQ(good.output, "out\nerr\n");
  EXPECT_EQ(good.exit_code, 0);
  const ToolResult bad = call("exec", {{"command", "echo out; echo err >&2; exit 3"}});
  EXPECT_EQ(bad.error, "exit code 3\nout\nerr\n");
  EXPECT_THAT(registry_.find("exec")->definition().description, HasSubstr("on the host itself"));
}

TEST_F(HostTest, AProgramHasNoSecretOfThisProcess) {
  ::setenv("ANTHROPIC_API_KEY", "key-of-the-model", 1);
  EXPECT_THAT(call("exec", {{"command", "env"}}).output, Not(HasSubstr("key-of-the-model")));
  ::unsetenv("ANTHROPIC_API_KEY");
}

TEST_F(HostTest, ATimeoutEndsAProgramWithItsChildren) {
  HostProgram program;
  program.arguments = {"bash", "-c", "echo begun; sleep 1000 & sleep 1000"};
  program.timeout = std::chrono::milliseconds(300);
  auto result = run_on_host(program, cancel_);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->timed_out);
  EXPECT_EQ(result->standard_output, "begun\n");
  EXPECT_LT(result->duration_ms, test::patient(std::chrono::seconds(5)).count());
}

TEST_F(HostTest, CancellingEndsAProgram) {
  cancel_.ask();
  HostProgram program;
  program.arguments = {"sleep", "1000"};
  auto result = run_on_host(program, cancel_);
  ASSERT_FALSE(result.ok());
  EXPECT_TRUE(is_cancelled(result.error()));
}

TEST_F(HostTest, ToolsThatAreNotAllowedAreNotEvenMade) {
  Registry none;
  ASSERT_TRUE(add_tools({}, {}, none).ok());
  EXPECT_TRUE(none.definitions().empty());
  const Status unknown = add_tools({"exce"}, {}, none);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().to_string(), HasSubstr("did you mean 'exec'?"));
  const std::unique_ptr<HostFiles> files = std::move(HostFiles::open(folder_).value());
  const Status twice = add_tools({"read_file", "files"}, {.files = files.get()}, none);
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("two tools with the name 'read_file'"));
}

TEST_F(HostTest, SkillsAreReadAnewAndFromTheirFolderAlone) {
  put("skills/deploy/SKILL.md", "# Deploy\nPush the button.\n");
  put("outside", "secret");
  std::filesystem::create_symlink(folder_ + "/outside", folder_ + "/skills/link");
  std::filesystem::create_directory_symlink("/etc", folder_ + "/skills/etc");
  const Skills skills = std::move(Skills::open(folder_ + "/skills").value());
  EXPECT_THAT(skills.list().value(), ElementsAre("deploy/SKILL.md"));
  EXPECT_THAT(skills.search("BUTTON").value(), ElementsAre("deploy/SKILL.md:2: Push the button."));
  put("skills/deploy/SKILL.md", "# Deploy\nPull the lever.\n");
  EXPECT_THAT(skills.read("deploy/SKILL.md")->text, HasSubstr("lever"));
  for (const char* path : {"../outside", "link", "etc/passwd", "/etc/passwd", "a/../../outside"}) {
    EXPECT_FALSE(skills.read(path).ok()) << path;
  }
  put("skills/long", std::string(150'000, 'x'));
  EXPECT_EQ(skills.read("long")->text.size(), Skills::kLongestRead);
  EXPECT_TRUE(skills.read("long")->cut);
}

TEST_F(HostTest, ASkillToolWithoutAFolderIsAnError) {
  Registry registry;
  const Status added = add_tools({"skill"}, {}, registry);
  ASSERT_FALSE(added.ok());
  EXPECT_THAT(added.error().to_string(), HasSubstr("no folder to read from"));
}

Service doubler() {
  return {
      "double", "twice a number",
      R"({"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]})",
      perform_by_program(
          {"python3", "-c",
           "import json,sys; n=json.load(sys.stdin)['n']; sys.exit('no') if n<0 else print(2*n)"},
          std::chrono::seconds(20))};
}

TEST_F(HostTest, AServiceGetsCheckedArgumentsAndErrorsAreData) {
  Registry registry;
  ASSERT_TRUE(add_tools({"services"}, {.services = {doubler()}}, registry).ok());
  EXPECT_EQ(registry.call("service_double", R"({"n":21})", cancel_)->output, "42\n");
  EXPECT_THAT(registry.call("service_double", R"({"n":"21"})", cancel_)->error,
              HasSubstr("'n' must be an integer"));
  EXPECT_THAT(registry.call("service_double", R"({"n":1,"command":"rm"})", cancel_)->error,
              HasSubstr("service_double has no 'command'"));
  EXPECT_THAT(registry.call("service_double", R"({"n":-1})", cancel_)->error, HasSubstr("no"));
}

TEST(WorkspacePathTest, PathsAreOfTheWorkspaceByWholeComponents) {
  EXPECT_EQ(workspace_path("a/b").value(), "a/b");
  EXPECT_EQ(workspace_path("/workspace/a").value(), "a");
  EXPECT_EQ(workspace_path("./a//b/").value(), "a/b");
  EXPECT_EQ(workspace_path("workspace_backup/x").value(), "workspace_backup/x");
  EXPECT_EQ(workspace_path("workspace/x").value(), "workspace/x");
  EXPECT_EQ(workspace_path("/workspace").value(), ".");
  for (const char* path : {"../x", "a/../../x", "/etc/passwd", "/workspace_backup/x", "", ".."}) {
    EXPECT_FALSE(workspace_path(path).ok()) << path;
  }
}

}  // namespace
}  // namespace carrel::tools
