// What programs of the host need of its /etc: they start, and have the host's time and language.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;

class HostEtc : public CarrelTest {
 protected:
  void TearDown() override {
    for (; !mounted_.empty(); mounted_.pop_back()) {
      ::umount2(mounted_.back().c_str(), MNT_DETACH);
    }
    CarrelTest::TearDown();
  }
  // The test gets an /etc of its own, in its own mount namespace: a copy of the host's.
  void copy_etc() {
    const std::string copy = place().work(GetParam()) + "/etc-copy";
    fs::create_directory(copy);
    ASSERT_EQ(::mount("none", copy.c_str(), "tmpfs", 0, "mode=0755"), 0);
    mounted_.push_back(copy);
    ASSERT_EQ(std::system(("cp -a /etc/. " + copy).c_str()), 0);
    ASSERT_EQ(::mount(copy.c_str(), "/etc", nullptr, MS_BIND, nullptr), 0);
    mounted_.emplace_back("/etc");
  }
  static bool has(const std::string& program) { return ::access(program.c_str(), X_OK) == 0; }

 private:
  std::vector<std::string> mounted_;
};
CARREL_AS_BOTH(HostEtc);

TEST_P(HostEtc, JavaRunsASourceFile) {
  if (!has("/usr/bin/javac")) {
    GTEST_SKIP() << "this host has no JDK";
  }
  const Run run = bash(
      "printf 'import java.net.*;import java.security.*;public class A{public static void "
      "main(String[] a)throws Exception{System.out.println(\"sum \"+(40+2)+\" \"+"
      "MessageDigest.getInstance(\"SHA-256\").getProvider().getName());}}' > A.java && java A.java",
      {"--memory", "1g", "--pids", "512"});
  EXPECT_EQ(run.out, "sum 42 SUN\n") << run.err;
}

TEST_P(HostEtc, MavenStarts) {
  if (!has("/usr/bin/mvn")) {
    GTEST_SKIP() << "this host has no Maven";
  }
  const Run run = bash("mvn --version", {"--memory", "1g", "--pids", "512"});
  EXPECT_NE(run.out.find("Apache Maven"), std::string::npos) << run.out << run.err;
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST_P(HostEtc, FontconfigKnowsItsFolders) {
  if (!has("/usr/bin/fc-list")) {
    GTEST_SKIP() << "this host has no fontconfig";
  }
  const Run run = bash("fc-match -f '%{file}\\n' sans; fc-list | wc -l");
  EXPECT_EQ(run.err.find("Cannot load default config file"), std::string::npos) << run.err;
  EXPECT_NE(run.out, "\n0\n");
}

TEST_P(HostEtc, ManFindsAndShowsAPage) {
  if (!has("/usr/bin/man")) {
    GTEST_SKIP() << "this host has no man";
  }
  const Run run = bash(
      "mkdir -p /tmp/pages/man1; printf '.TH OWN 1\\n.SH NAME\\nown \\\\- a page\\n' > "
      "/tmp/pages/man1/own.1; MANPATH=/tmp/pages man own | cat; manpath 2>&1");
  EXPECT_NE(run.out.find("own - a page"), std::string::npos) << run.out << run.err;
  EXPECT_NE(run.out.find("/usr/share/man"), std::string::npos) << run.out << run.err;
  EXPECT_EQ(run.err.find("manpath.config"), std::string::npos) << run.err;
}

TEST_P(HostEtc, TypesOfFilesAreKnown) {
  if (::access("/etc/mime.types", R_OK) != 0) {
    GTEST_SKIP() << "this host has no mime.types";
  }
  EXPECT_EQ(python("import mimetypes; print(mimetypes.guess_type('a.odt')[0])").out,
            "application/vnd.oasis.opendocument.text\n");
}

TEST_P(HostEtc, TheTimeZoneIsTheHosts) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount";
  }
  copy_etc();
  if (HasFatalFailure()) {
    return;
  }
  fs::remove("/etc/localtime");
  fs::create_symlink("/usr/share/zoneinfo/Asia/Tokyo", "/etc/localtime");
  write_text("/etc/timezone", "Asia/Tokyo\n");
  const std::string ask =
      "date -d @0 +%H:%M%Z; cat /etc/timezone; python3 -c 'import time; print(time.tzname[0])'";
  EXPECT_EQ(bash(ask).out, "09:00JST\nAsia/Tokyo\nJST\n");
  const Box box(GetParam());
  EXPECT_EQ(box.sh(ask).out, "09:00JST\nAsia/Tokyo\nJST\n");
  // As a file of its own, which some hosts have.
  fs::remove("/etc/localtime");
  fs::copy_file("/usr/share/zoneinfo/Asia/Kolkata", "/etc/localtime");
  EXPECT_EQ(bash("date -d @0 +%H:%M%Z").out, "05:30IST\n");
}

TEST_P(HostEtc, TheLanguageIsTheHostsWhereItsDataIsThere) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount";
  }
  copy_etc();
  if (HasFatalFailure()) {
    return;
  }
  fs::remove("/etc/locale.conf");
  fs::remove("/etc/default/locale");
  EXPECT_EQ(bash("echo $LANG; locale 2>&1 | grep -c 'No such'").out, "C.UTF-8\n0\n");
  write_text("/etc/default/locale", "LANG=\"xx_XX.UTF-8\"\n");
  EXPECT_EQ(bash("echo $LANG").out, "C.UTF-8\n") << "there is no data for it";
  write_text("/etc/default/locale", "LANG=../../../tmp/x.UTF-8\n");
  EXPECT_EQ(bash("echo $LANG").out, "C.UTF-8\n");
}

TEST_P(HostEtc, AFileCanBeMountedBelowEtc) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  place().give(data, GetParam());
  file("data/conf", "mine\n");
  const std::string own = file("own", "own\n");
  const Run run = bash(
      "cat /etc/app/deep/conf /etc/own.conf /etc/inputrc /etc/timezone; "
      "echo new > /etc/app/deep/new; touch /etc/app/x /etc/own.conf",
      {"--mount", data + ":/etc/app/deep:rw", "--mount", own + ":/etc/own.conf", "--mount",
       own + ":/etc/inputrc", "--mount", own + ":/etc/timezone"});
  EXPECT_EQ(run.out, "mine\nown\nown\nown\n") << run.err;
  EXPECT_EQ(read_text(data + "/new"), "new\n");
  EXPECT_NE(run.err.find("/etc/app/x"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("/etc/own.conf"), std::string::npos) << run.err;
  for (const char* generated : {"/etc", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf/x"}) {
    const Run refused = bash("echo ran", {"--mount", own + ":" + generated});
    EXPECT_EQ(refused.status, 125) << generated << refused.err;
  }
  const Run inside = bash("echo ran", {"--mount", own + ":/etc/fonts/none.conf"});
  EXPECT_TRUE(inside.status == 125 || !fs::exists("/etc/fonts")) << inside.err;
  if (fs::exists("/etc/fonts")) {
    EXPECT_TRUE(says_one_line(inside, "/etc/fonts")) << inside.err;
  }
}

}  // namespace
}  // namespace carrel::test
