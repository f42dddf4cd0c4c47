#include "support/fixture.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace carrel::test {

void CarrelTest::SetUp() {
  if (as_root() && ::geteuid() != 0) {
    GTEST_SKIP() << "the tests do not run as root, so that nothing can be started as root";
  }
  renew_place();
  before_ = Leftovers::snapshot();
}

void CarrelTest::TearDown() {
  if (IsSkipped()) {
    leave_place();
    return;
  }
  if (std::filesystem::exists(place().home(GetParam()) + "/state.db")) {
    Run removed = carrel({"rm", "--all", "--force"});
    EXPECT_EQ(removed.status, 0) << removed.err;
  }
  EXPECT_EQ(left_since(before_), "") << "this was left behind";
  leave_place();
}

CarrelTest::Run CarrelTest::carrel(std::vector<std::string> arguments,
                                   const Options& options) const {
  return test::carrel(GetParam(), std::move(arguments), options);
}

CarrelTest::Run CarrelTest::bash(const std::string& script,
                                 std::vector<std::string> options) const {
  std::vector<std::string> words = {"run"};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {"--", "bash", "-c", script});
  return carrel(words);
}

CarrelTest::Run CarrelTest::python(const std::string& code,
                                   std::vector<std::string> options) const {
  std::vector<std::string> words = {"code", "--lang", "python"};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("-");
  return carrel(words, {.input = code});
}

Launch CarrelTest::launch(std::vector<std::string> arguments, const Options& options) const {
  return place().launch(GetParam(), std::move(arguments), options);
}

std::string CarrelTest::file(const std::string& name, const std::string& text) const {
  std::string path = place().work(GetParam()) + "/" + name;
  write_text(path, text);
  place().give(path, GetParam());
  return path;
}

testing::AssertionResult says_one_line(const Run& run, const std::string& text) {
  if (!run.out.empty()) {
    return testing::AssertionFailure() << "stdout is not empty: " << run.out.substr(0, 500);
  }
  if (std::count(run.err.begin(), run.err.end(), '\n') != 1 || run.err.back() != '\n' ||
      !run.err.starts_with("carrel: ")) {
    return testing::AssertionFailure()
           << "not one line 'carrel: ...': " << run.err.substr(0, 500) << " (status " << run.status
           << ", signal " << run.signal << ")";
  }
  if (run.err.find(text) == std::string::npos) {
    return testing::AssertionFailure() << "does not say '" << text << "': " << run.err;
  }
  return testing::AssertionSuccess();
}

}  // namespace carrel::test
