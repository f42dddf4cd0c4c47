#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/host.h"
#include "support/leftovers.h"
#include "support/place.h"
#include "support/process.h"

namespace carrel::test {

// One test with the finished program, once as root and once as an ordinary user, in a place of its
// own. After the test, its long-lived sandboxes are removed, and nothing may be left behind.
//
//   class OneShot : public CarrelTest {};
//   CARREL_AS_BOTH(OneShot);
//   TEST_P(OneShot, StartsClean) { EXPECT_EQ(carrel({"run", "--", "true"}).status, 0); }
class CarrelTest : public testing::TestWithParam<As> {
 protected:
  using Run = test::Run;  // GoogleTest has a private function of that name

  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] bool as_root() const { return GetParam() == As::kRoot; }

  // The program as the user of this instance.
  Run carrel(std::vector<std::string> arguments, const Options& options = {}) const;
  // `carrel run -- bash -c script`
  Run bash(const std::string& script, std::vector<std::string> options = {}) const;
  // `carrel code --lang python -` with that text
  Run python(const std::string& code, std::vector<std::string> options = {}) const;
  // Started, and left running.
  [[nodiscard]] Launch launch(std::vector<std::string> arguments,
                              const Options& options = {}) const;

  // A file in the working directory of the program, readable for everybody.
  std::string file(const std::string& name, const std::string& text) const;

 private:
  Leftovers before_;
};

// Exactly one line on stderr that begins with "carrel: " and holds `text`, and nothing on stdout.
testing::AssertionResult says_one_line(const Run& run, const std::string& text);

}  // namespace carrel::test

#define CARREL_AS_BOTH(fixture)                         \
  INSTANTIATE_TEST_SUITE_P(                             \
      , fixture, testing::Values(As::kRoot, As::kUser), \
      [](const testing::TestParamInfo<As>& one) { return name_of(one.param); })
