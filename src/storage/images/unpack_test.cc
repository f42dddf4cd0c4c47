#include "storage/images/unpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "storage/images/images_test_support.h"

namespace carrel::storage {
namespace {

using ::testing::HasSubstr;

class UnpackTest : public testing::Test {
 protected:
  Result<UnpackedLayer> unpack(const std::string& bytes, TreeLimits limits = {}) {
    std::filesystem::remove_all(scratch_ / "layer");
    const UniqueFd layer = scratch_.directory("layer");
    const std::string file = scratch_.write("archive", bytes);
    const UniqueFd source(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    return unpack_layer(source.get(), layer.get(), limits, "it", nullptr);
  }
  // Unpacks, and expects that to fail with that text and nothing to be outside.
  void refused(const Tar& tar, const std::string& text, TreeLimits limits = {}) {
    auto result = unpack(tar.bytes(), limits);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_THAT(result.error().to_string(), HasSubstr(text));
  }
  [[nodiscard]] std::string compressed(const std::string& bytes) const {
    const std::string file = scratch_.write("plain", bytes);
    const std::string command = "gzip -c < " + file + " > " + file + ".gz";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return scratch_.read("plain.gz");
  }
  [[nodiscard]] std::size_t files_outside() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
      const std::string name = entry.path().filename();
      count += name != "layer" && name != "archive" ? 1U : 0U;
    }
    for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "layer")) {
      const std::string name = entry.path().filename();
      count += name != "tree" && name != "whiteouts" ? 1U : 0U;
    }
    return count;
  }
  Scratch scratch_;
};

TEST_F(UnpackTest, FilesLinksAndTimesArrive) {
  Tar tar;
  tar.directory("./usr/", 0700).file("./usr/tool", "text", 0750).link("bin", "usr");
  tar.hard_link("usr/again", "./usr/tool").file("/absolute", "contained");
  auto result = unpack(tar.bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(result.value().digest, sha256(tar.bytes()));
  EXPECT_EQ(result.value().contents.entries, 5U);
  EXPECT_EQ(result.value().contents.bytes, 13U);
  EXPECT_EQ(scratch_.read("layer/tree/usr/again"), "text");
  EXPECT_EQ(scratch_.read("layer/tree/absolute"), "contained");
  EXPECT_EQ(std::filesystem::read_symlink(scratch_ / "layer/tree/bin"), "usr");
  struct stat info{};
  ASSERT_EQ(::stat((scratch_ / "layer/tree/usr/tool").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0755U);
  EXPECT_EQ(info.st_mtim.tv_sec, 1'000'000'000);
}

TEST_F(UnpackTest, NamesThatAreNotAsciiArrive) {
  Tar tar;
  tar.pax("path", "F\xc5\x91tan\xc3\xba.crt").file("short", "x");
  auto result = unpack(tar.bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_TRUE(scratch_.exists("layer/tree/F\xc5\x91tan\xc3\xba.crt"));
}

// The composed and the decomposed form of a letter are two names, and a name need not be UTF-8.
TEST_F(UnpackTest, NamesKeepTheirBytesInEveryForm) {
  const std::vector<std::string> names = {"e\xcc\x81", "\xc3\xa9", "caf\xe9", "\xff\x80"};
  Tar tar;
  for (const std::string& name : names) {
    tar.file("ustar/" + name, "x").link("ustar/l" + name, name);
    tar.pax("path", "pax/" + name).file("short", "x");
    tar.pax("path", "pax/l" + name).pax("linkpath", name).link("short", "x");
    tar.add("././@LongLink", "gnu/" + name + '\0', {.type = 'L'}).file("short", "x");
  }
  auto result = unpack(tar.bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  for (const std::string& name : names) {
    for (const char* form : {"ustar/", "pax/", "gnu/"}) {
      EXPECT_TRUE(scratch_.exists("layer/tree/" + (form + name))) << form << name;
    }
    for (const char* form : {"ustar/l", "pax/l"}) {
      EXPECT_EQ(std::filesystem::read_symlink(scratch_ / ("layer/tree/" + (form + name))), name);
    }
  }
}

TEST_F(UnpackTest, PathsThatLeaveTheTreeAreRefused) {
  for (const char* path : {"../escaped", "a/../../escaped", "/../escaped", "a/..", ".."}) {
    refused(Tar().file(path, "x"), "leaves the tree");
    refused(Tar().directory(path), "leaves the tree");
    refused(Tar().link(path, "x"), "leaves the tree");
    refused(Tar().file("a", "x").hard_link(path, "a"), "leaves the tree");
    refused(Tar().pax("path", path).file("harmless", "x"), "leaves the tree");
  }
  EXPECT_EQ(files_outside(), 0U);
}

TEST_F(UnpackTest, NothingIsWrittenThroughALink) {
  for (const char* target : {"/", "..", "../..", "/tmp", "/proc/self/root"}) {
    refused(Tar().link("d", target).file("d/escaped", "x"), "no directory");
    refused(Tar().directory("a").link("a/d", target).directory("a/d/escaped"), "no directory");
    refused(Tar().link("d", target).hard_link("x", "d/escaped"), "no file of the same layer");
  }
  // A file in the place of a link takes that place.
  const std::string victim = scratch_.write("victim", "old");
  auto result = unpack(Tar().link("f", victim).file("f", "new").bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(scratch_.read("victim"), "old");
  EXPECT_EQ(scratch_.read("layer/tree/f"), "new");
}

TEST_F(UnpackTest, HardLinksLeadToFilesOfTheLayerOnly) {
  refused(Tar().hard_link("x", "/etc/passwd"), "no file of the same layer");
  refused(Tar().hard_link("x", "../../victim"), "leaves the tree");
  refused(Tar().directory("d").hard_link("x", "d"), "no file of the same layer");
  // A link to a link to the outside is a link, and is replaced, not followed.
  const std::string victim = scratch_.write("victim", "old");
  auto result = unpack(Tar().link("a", victim).hard_link("b", "a").file("b", "new").bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(scratch_.read("victim"), "old");
}

TEST_F(UnpackTest, WhatLendsRightsIsLeftOutAndCounted) {
  Tar tar;
  tar.file("su", "x", 04755).file("sg", "x", 02755).directory("d", 02755);
  tar.add("null", "", {.type = '3', .mode = 0666}).add("disk", "", {.type = '4', .mode = 0666});
  tar.add("pipe", "", {.type = '6', .mode = 0666});
  tar.pax("SCHILY.xattr.security.capability", "x").file("ping", "x", 0755);
  tar.pax("SCHILY.xattr.trusted.overlay.opaque", "y").file("other", "x");
  auto result = unpack(tar.bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  const LeftOut& left_out = result.value().contents.left_out;
  EXPECT_EQ(left_out.set_ids, 3U);
  EXPECT_EQ(left_out.devices, 3U);
  EXPECT_EQ(left_out.attributes, 2U);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(scratch_ / "layer/tree")) {
    EXPECT_TRUE(entry.is_regular_file() || entry.is_directory()) << entry.path();
    struct stat info{};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07000, 0U) << entry.path();
  }
}

TEST_F(UnpackTest, BombsEndAtTheirLimits) {
  Tar many;
  for (int i = 0; i < 300; ++i) {
    many.file("f" + std::to_string(i), "");
  }
  refused(many, "more than 100 entries", {.bytes = 1 << 20, .entries = 100});
  Tar whiteouts;
  for (int i = 0; i < 300; ++i) {
    whiteouts.file(".wh.f" + std::to_string(i), "");
  }
  refused(whiteouts, "more than 100 entries", {.bytes = 1 << 20, .entries = 100});
  Tar large;
  large.file("a", std::string(700'000, 'x')).file("b", std::string(700'000, 'x'));
  refused(large, "MiB", {.bytes = 1 << 20, .entries = 100});
  // A file that is all hole and claims to be 8 GiB, in the old form of GNU tar.
  Tar sparse;
  sparse.pax("GNU.sparse.major", "0").pax("GNU.sparse.realsize", "99999999999999").file("s", "x");
  auto result = unpack(sparse.bytes(), {.bytes = 1 << 20, .entries = 100});
  struct stat info{};
  EXPECT_TRUE(!result.ok() ||
              (::stat((scratch_ / "layer/tree/s").c_str(), &info) == 0 && info.st_size <= 1 << 20));
  refused(Tar().add("claims", "x", {.claimed_size = "77777777777"}), "MiB",
          {.bytes = 1 << 20, .entries = 100});
}

TEST_F(UnpackTest, ArchivesThatAreCompressedTwiceAreRefused) {
  const std::string once = compressed(Tar().file("a", "text").bytes());
  auto result = unpack(once);
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(scratch_.read("layer/tree/a"), "text");
  std::string nested = once;
  for (int times = 2; times <= 4; ++times) {
    nested = compressed(nested);
    auto refused_one = unpack(nested);
    ASSERT_FALSE(refused_one.ok()) << times;
    EXPECT_THAT(refused_one.error().message, HasSubstr("compressed more than once")) << times;
  }
}

TEST_F(UnpackTest, DeepAndLongPathsAreRefused) {
  std::string deep;
  for (int i = 0; i < 1900; ++i) {
    deep += "d/";
  }
  refused(Tar().pax("path", deep + "x").file("harmless", "x"), "deeper or longer");
  refused(Tar().pax("path", std::string(5000, 'n')).file("harmless", "x"), "deeper or longer");
  refused(Tar().pax("path", std::string(300, 'n')).file("harmless", "x"), "too long");
}

TEST_F(UnpackTest, DeletionsAreKeptApart) {
  Tar tar;
  tar.file("etc/.wh.gone", "").file("opt/.wh..wh..opq", "").file(".wh..wh.plnk", "");
  tar.file("kept", "x");
  auto result = unpack(tar.bytes());
  ASSERT_TRUE(result.ok()) << result.error().to_string();
  EXPECT_EQ(scratch_.read("layer/whiteouts"), std::string("detc/gone\0oopt\0", 15));
  EXPECT_FALSE(scratch_.exists("layer/tree/etc"));
  EXPECT_TRUE(scratch_.exists("layer/tree/kept"));
  refused(Tar().file("a/.wh...", ""), "no entry of a directory");
}

TEST_F(UnpackTest, WhatIsNoArchiveIsSaid) {
  for (const std::string& bytes :
       {std::string(), std::string("hello"), std::string(4096, 'x'), std::string("PK\3\4", 4)}) {
    auto result = unpack(bytes);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message, HasSubstr("no tar archive"));
  }
  Tar tar;
  tar.file("a", std::string(100'000, 'x'));
  auto cut = unpack(tar.bytes().substr(0, 50'000));
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, HasSubstr("damaged"));
}

}  // namespace
}  // namespace carrel::storage
