// Images made of Debian packages, from the host's own apt sources.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

class Debian : public CarrelTest {
 protected:
  // C14: waits until a package is installed, and returns who does it, as a user of the host.
  static std::string user_of_dpkg(const Process& builder) {
    std::string user;
    eventually(seconds(200), [&] {
      bool building = false;
      for (const HostProcess& process : descendants()) {
        building = building || process.pid == builder.pid();
        const std::string words =
            read_text("/proc/" + std::to_string(process.pid) + "/cmdline").value_or("");
        if (process.name == "dpkg" && (words.find("--install") != std::string::npos ||
                                       words.find("--unpack") != std::string::npos ||
                                       words.find("--configure") != std::string::npos)) {
          const std::string ids = status_field(process.pid, "Uid");
          user = ids.substr(0, ids.find('\t'));
        }
      }
      return !user.empty() || !building;
    });
    return user;
  }
};
CARREL_AS_BOTH(Debian);

TEST_P(Debian, PackagesBecomeAnImage) {
  Process process(launch({"image", "build", "--debian", "--name", "tools", "hello"}));
  const std::string builder = user_of_dpkg(process);
  Run built = process.wait(seconds(280));
  if (built.err.find("Could not resolve") != std::string::npos ||
      built.err.find("Failed to fetch") != std::string::npos) {
    GTEST_SKIP() << "no Debian mirror can be reached: " << built.err;
  }
  ASSERT_EQ(built.status, 0) << built.err;
  EXPECT_EQ(built.out, "tools\n");
  EXPECT_EQ(built.err, "");
  EXPECT_GE(std::strtoul(builder.c_str(), nullptr, 10), 100'000U)
      << "packages were unpacked by user " << builder << " of the host";
  Run run = carrel({"run", "--image", "tools", "--", "sh", "-c", "hello; cat /etc/debian_version"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.starts_with("Hello, world!\n12.")) << run.out;
  EXPECT_TRUE(fs::is_empty(place().home(GetParam()) + "/images/downloads"));
  EXPECT_TRUE(fs::is_empty(place().temporary(GetParam())));
}

TEST_P(Debian, WrongWordsAreOneLine) {
  const struct {
    std::vector<std::string> words;
    const char* text;
  } kTable[] = {
      {{"image", "build", "hello"}, "--debian builds from Debian packages"},
      {{"image", "build", "--debian", "a b"}, "is not the name of a Debian package"},
      {{"image", "build", "--debian", "--", "--setup-hook=touch /x"},
       "is not the name of a Debian package"},
      {{"image", "build", "--debian", "x,?essential"}, "is not the name of a Debian package"},
      {{"image", "build", "--debian", "--suite", "../x"}, "not a name"},
      {{"image", "rm", "x", "--debian"}, "belongs to image build"},
  };
  for (const auto& row : kTable) {
    Run run = carrel(row.words);
    EXPECT_EQ(run.status, 125) << row.text;
    EXPECT_TRUE(says_one_line(run, row.text));
  }
}

}  // namespace
}  // namespace carrel::test
