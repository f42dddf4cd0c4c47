#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "cli/args.h"
#include "cli/context.h"

namespace carrel::cli {
namespace {

struct Answer {
  int status = -1;
  std::string out;
};

Answer doctor(std::vector<std::string_view> words) {
  auto arguments = parse_arguments(command(CommandId::kDoctor), words);
  if (!arguments.ok()) {
    ADD_FAILURE() << arguments.error().to_string();
    return {};
  }
  testing::internal::CaptureStdout();
  const int status = doctor_command(Context{arguments.value()});
  return {status, testing::internal::GetCapturedStdout()};
}

class DoctorCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "carrel-doctor-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
    ::setenv("CARREL_HOME", path_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("CARREL_HOME");
    EXPECT_TRUE(remove_tree_at(AT_FDCWD, path_).ok());
  }

  std::string path_;
};

TEST_F(DoctorCommand, JsonIsOneObjectWithAStatusForEachCheck) {
  const Answer answer = doctor({"--json"});
  const nlohmann::json object = nlohmann::json::parse(answer.out);
  EXPECT_EQ(answer.status, object.at("ok").get<bool>() ? 0 : kCarrelFailed);
  const std::set<std::string> statuses = {"ok", "missing", "warning"};
  std::set<std::string> names;
  for (const nlohmann::json& check : object.at("checks")) {
    EXPECT_EQ(check.size(), 4U);
    EXPECT_EQ(statuses.count(check.at("status").get<std::string>()), 1U);
    EXPECT_TRUE(check.at("detail").is_string());
    EXPECT_TRUE(check.at("fix").is_string());
    names.insert(check.at("name").get<std::string>());
  }
  for (const char* name : {"user_namespace", "memory", "state_directory", "bash", "sandbox"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
}

TEST_F(DoctorCommand, TheTableEndsWithTheVerdict) {
  const Answer answer = doctor({});
  EXPECT_EQ(answer.status, 0) << answer.out;
  const std::size_t last = answer.out.rfind('\n', answer.out.size() - 2);
  EXPECT_THAT(answer.out.substr(last + 1), testing::StartsWith("Sandboxes work here"));
  EXPECT_THAT(answer.out, testing::HasSubstr("ok       user_namespace "));
}

TEST_F(DoctorCommand, WithoutAStateDirectoryItIs125AndSaysWhatToDo) {
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  const Answer answer = doctor({});
  EXPECT_EQ(answer.status, 125);
  EXPECT_THAT(answer.out, testing::HasSubstr("Sandboxes do not work here. state_directory: "));
  EXPECT_THAT(answer.out, testing::HasSubstr("not tried: "));
  EXPECT_THAT(answer.out, testing::HasSubstr("set CARREL_HOME"));
}

}  // namespace
}  // namespace carrel::cli
