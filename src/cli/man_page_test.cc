#include "cli/man_page.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/files.h"
#include "base/unique_fd.h"
#include "cli/environment.h"
#include "cli/options.h"
#include "policy/settings.h"

namespace carrel::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string output_of(const std::string& line) {
  std::string output;
  if (FILE* pipe = ::popen(line.c_str(), "re"); pipe != nullptr) {
    std::array<char, 4096> buffer{};
    while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
      output.append(buffer.data(), count);
    }
    ::pclose(pipe);
  }
  return output;
}

TEST(ManPageTest, HasTheSectionsOfAManual) {
  const std::string page = man_page("1.2.3");
  for (const std::string title : {"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "SANDBOX OPTIONS",
                                  "CONFIGURATION", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES"}) {
    EXPECT_THAT(page, HasSubstr("\n.SH " + title + "\n"));
  }
  EXPECT_THAT(page, HasSubstr("carrel 1.2.3"));
}

TEST(ManPageTest, NamesEveryVariableAndTheDefaultOfTheHome) {
  const std::string page = man_page("1");
  for (const EnvironmentName& row : environment_names()) {
    EXPECT_THAT(page, HasSubstr("\n\\fB" + std::string(row.name) + "\\fR\n"));
  }
  EXPECT_THAT(page, HasSubstr("/var/lib/carrel"));
}

TEST(ManPageTest, NamesEveryCommandAndEverySetting) {
  const std::string page = man_page("1");
  for (const Command& row : commands()) {
    const std::string heading = "\n.SS " + std::string(row.name) + "\n";
    if (row.visibility == Visibility::kListed) {
      EXPECT_THAT(page, HasSubstr(heading));
    } else {
      EXPECT_THAT(page, Not(HasSubstr(heading)));
    }
  }
  for (const policy::Setting& setting : policy::settings()) {
    if (setting.offered != policy::Offered::kNotBuilt) {
      EXPECT_THAT(page, HasSubstr("\\fB" + policy::key_name(setting.name)));
    }
  }
  EXPECT_THAT(page, HasSubstr("memory_limit"));
  EXPECT_THAT(page, Not(HasSubstr("\\-\\-tier")));
}

TEST(ManPageTest, FormatsWithoutWarnings) {
  if (output_of("command -v groff").empty()) {
    GTEST_SKIP() << "groff is not installed";
  }
  std::string path = testing::TempDir() + "carrel-man-XXXXXX";
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  ASSERT_TRUE(write_all(file.get(), man_page("1.2.3")).ok());
  EXPECT_EQ(output_of("groff -man -ww -Tascii -z '" + path + "' 2>&1"), "");
  const std::string text = output_of("groff -man -Tascii -P-c -P-bou '" + path + "' 2>/dev/null");
  EXPECT_THAT(text, HasSubstr("--memory SIZE"));
  EXPECT_THAT(text, HasSubstr("-t, --tty"));
  EXPECT_THAT(text, HasSubstr("carrel run -- python3 -c 'print(42)'"));
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace carrel::cli
