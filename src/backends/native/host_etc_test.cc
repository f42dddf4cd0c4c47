#include "backends/native/host_etc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace carrel::native {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

class HostEtcTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "carrel-etc-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    etc_ = name + "/etc";
    fs::create_directory(etc_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void put(const std::string& name, const std::string& text = "text") const {
    const fs::path path = root_ + "/" + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void link(const std::string& target, const std::string& name) const {
    fs::create_symlink(target, etc_ + "/" + name);
  }
  [[nodiscard]] HostEtc look() const { return look_at_etc(etc_); }

  std::string root_;
  std::string etc_;
};

TEST_F(HostEtcTest, OnlyNamesOfTheTableAreShown) {
  for (const char* name :
       {"inputrc", "environment", "fstab", "pip.conf", "maven/settings.xml", "maven/m2.conf",
        "java-17-openjdk/security/java.security", "java-17-openjdk/jvm-amd64.cfg",
        "java-17-openjdk/management/jmxremote.password", "default/docker"}) {
    put(std::string("etc/") + name);
  }
  const HostEtc etc = look();
  EXPECT_THAT(etc.texts,
              ElementsAre(Pair("inputrc", "text"), Pair("java-17-openjdk/jvm-amd64.cfg", "text"),
                          Pair("maven/m2.conf", "text")));
  EXPECT_THAT(etc.folders, ElementsAre("java-17-openjdk/security"));
  EXPECT_THAT(etc.files, IsEmpty());
  EXPECT_THAT(etc.links, IsEmpty());
}

TEST_F(HostEtcTest, LargeFilesAreMountedAndAReplacedOneIsAnother) {
  put("etc/mime.types", std::string(100'000, 'x'));
  const HostEtc before = look();
  EXPECT_THAT(before.files, ElementsAre("mime.types"));
  put("new", std::string(100'000, 'x'));
  fs::rename(root_ + "/new", etc_ + "/mime.types");
  EXPECT_NE(look().sources, before.sources);
}

TEST_F(HostEtcTest, LinksAreShownWhereTheyLeadToWhatIsShown) {
  fs::create_directory(etc_ + "/maven");
  link("/usr/share/zoneinfo/Etc/UTC", "localtime");
  link("../usr/lib/inputrc", "inputrc");
  link("/etc/fonts/x", "manpath.config");
  link("../timezone", "maven/m2.conf");
  link("/etc/environment", "timezone");
  link("environment", "protocols");
  link("/usr/../etc/shadow", "services");
  link("/root", "fonts");
  link("/etc/secret", "java-17-openjdk");
  put("etc/secret/jvm-amd64.cfg");
  EXPECT_THAT(look().links, ElementsAre(Pair("localtime", "/usr/share/zoneinfo/Etc/UTC"),
                                        Pair("inputrc", "../usr/lib/inputrc"),
                                        Pair("manpath.config", "/etc/fonts/x"),
                                        Pair("maven/m2.conf", "../timezone")));
  EXPECT_THAT(look().texts, IsEmpty());
  EXPECT_THAT(look().folders, IsEmpty());
}

TEST_F(HostEtcTest, WhatOthersCanWriteOrNotEverybodyReadIsNotShown) {
  put("etc/inputrc");
  put("etc/timezone");
  put("etc/manpath.config");
  put("etc/fonts/x");
  put("etc/maven/m2.conf");
  ASSERT_EQ(::chmod((etc_ + "/inputrc").c_str(), 0664), 0);
  ASSERT_EQ(::chmod((etc_ + "/timezone").c_str(), 0600), 0);
  ASSERT_EQ(::chmod((etc_ + "/fonts").c_str(), 0777), 0);
  ASSERT_EQ(::chmod((etc_ + "/maven").c_str(), 0775), 0);
  ASSERT_EQ(::mkfifo((etc_ + "/protocols").c_str(), 0644), 0);
  EXPECT_THAT(look().texts, ElementsAre(Pair("manpath.config", "text")));
  EXPECT_THAT(look().folders, IsEmpty());
  EXPECT_THAT(look().files, IsEmpty());
}

TEST_F(HostEtcTest, TheLanguageIsTheHostsWhereItsDataIs) {
  EXPECT_EQ(language_of_host(root_), "C.UTF-8");
  put("etc/default/locale", "# made by a tool\nLANG=\"de_DE.UTF-8\"\nLC_TIME=x\n");
  EXPECT_EQ(language_of_host(root_), "C.UTF-8");
  fs::create_directories(root_ + "/usr/lib/locale/de_DE.utf8");
  EXPECT_EQ(language_of_host(root_), "de_DE.UTF-8");
  put("etc/locale.conf", "LANG=fr_FR.UTF-8\n");
  EXPECT_EQ(language_of_host(root_), "C.UTF-8");
  for (const char* bad : {"de_DE", "de_DE.ISO-8859-1", "../../x.UTF-8", "..UTF-8", "a b.UTF-8", "",
                          "/x.UTF-8", ".UTF-8"}) {
    put("etc/locale.conf", std::string("LANG=") + bad + "\n");
    fs::remove(etc_ + "/default/locale");
    EXPECT_EQ(language_of_host(root_), "C.UTF-8") << bad;
  }
}

// Eight numbers, then what they say; here with its names at once behind them.
TEST_F(HostEtcTest, TheArchiveOfLocalesIsRead) {
  put("etc/locale.conf", "LANG=de_DE.UTF-8@euro\n");
  const std::string names = std::string("C\0de_DE.utf8@euro\0fr_FR.utf8", 29) + '\0';
  const std::uint32_t head[8] = {0xde020109, 0, 0, 0, 0, 32, 30, 30};
  const std::string text(reinterpret_cast<const char*>(head), sizeof head);
  put("usr/lib/locale/locale-archive", text + names);
  EXPECT_EQ(language_of_host(root_), "de_DE.UTF-8@euro");
  put("etc/locale.conf", "LANG=DE.UTF-8@euro\n");
  EXPECT_EQ(language_of_host(root_), "C.UTF-8");
  put("etc/locale.conf", "LANG=de_DE.UTF-8@euro\n");
  put("usr/lib/locale/locale-archive", text.substr(0, 20));
  EXPECT_EQ(language_of_host(root_), "C.UTF-8");
}

}  // namespace
}  // namespace carrel::native
