// Images made of Debian packages, from the host's own apt sources.
#include <signal.h>

#include <algorithm>
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
  // What is known of who installs the packages.
  struct Installer {
    std::string user;    // of the host
    std::string secret;  // the host's file, as those in the room see it
    bool apart = false;  // has processes and shared memory of its own
  };

  // C14: waits until a package is installed, and returns who does it. All of the builder's own
  // processes are looked at: a script could leave its root for that of the one that started it.
  static Installer installer_of(const Process& builder, const std::string& secret) {
    Installer found;
    const auto space = [](const std::string& process, const char* name) {
      return fs::read_symlink("/proc/" + process + "/ns/" + name).string();
    };
    eventually(seconds(200), [&] {
      bool building = false;
      for (const HostProcess& process : descendants()) {
        building = building || process.pid == builder.pid();
        const std::string folder = "/proc/" + std::to_string(process.pid);
        const std::string words = read_text(folder + "/cmdline").value_or("");
        if (words.find("/mmdebstrap") != std::string::npos) {
          found.secret += read_text(folder + "/root" + secret).value_or("");
        }
        if (process.name == "dpkg" && (words.find("--install") != std::string::npos ||
                                       words.find("--unpack") != std::string::npos ||
                                       words.find("--configure") != std::string::npos)) {
          const std::string ids = status_field(process.pid, "Uid");
          found.user = ids.substr(0, ids.find('\t'));
          const std::string pid = std::to_string(process.pid);
          found.apart = space(pid, "pid") != space("self", "pid") &&
                        space(pid, "ipc") != space("self", "ipc") &&
                        space(pid, "mnt") != space("self", "mnt");
          found.secret += read_text(folder + "/root" + secret).value_or("");
        }
      }
      return !found.user.empty() || !building;
    });
    return found;
  }
};
CARREL_AS_BOTH(Debian);

TEST_P(Debian, PackagesBecomeAnImage) {
  const std::string secret = place().work(GetParam()) + "/secret";
  write_text(secret, "a file of the host");
  Process process(launch({"image", "build", "--debian", "--name", "tools", "hello"}));
  const Installer builder = installer_of(process, secret);
  Run built = process.wait(seconds(280));
  if (built.err.find("Could not resolve") != std::string::npos ||
      built.err.find("Failed to fetch") != std::string::npos) {
    GTEST_SKIP() << "no Debian mirror can be reached: " << built.err;
  }
  ASSERT_EQ(built.status, 0) << built.err;
  EXPECT_EQ(built.out, "tools\n");
  EXPECT_EQ(built.err, "");
  EXPECT_GE(std::strtoul(builder.user.c_str(), nullptr, 10), 100'000U)
      << "packages were unpacked by user " << builder.user << " of the host";
  EXPECT_TRUE(builder.apart);
  EXPECT_EQ(builder.secret, "") << "the packages' scripts can reach the host's files";
  Run run = carrel({"run", "--image", "tools", "--", "sh", "-c", "hello; cat /etc/debian_version"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.starts_with("Hello, world!\n12.")) << run.out;
  EXPECT_TRUE(fs::is_empty(place().home(GetParam()) + "/images/downloads"));
  EXPECT_TRUE(fs::is_empty(place().temporary(GetParam())));
}

TEST_P(Debian, ABuildWhoseCommandIsKilledLeavesNothing) {
  fs::permissions(place().temporary(GetParam()), fs::perms(01777));  // as /tmp is
  Process process(launch({"image", "build", "--debian", "hello"}));
  const auto is_building = [] {
    const auto processes = descendants();
    return std::any_of(processes.begin(), processes.end(), [](const HostProcess& each) {
      return each.name == "mmdebstrap" || each.name == "apt-get";
    });
  };
  ASSERT_TRUE(eventually(seconds(30), is_building));
  ASSERT_EQ(::kill(process.pid(), SIGKILL), 0);
  process.wait(seconds(10));
  EXPECT_TRUE(eventually(seconds(10), [&] {
    return descendants().empty() && fs::is_empty(place().temporary(GetParam()));
  }));
  EXPECT_EQ(carrel({"image", "ls"}).status, 0);  // removes what was half downloaded
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
