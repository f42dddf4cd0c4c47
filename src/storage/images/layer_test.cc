#include "storage/images/layer.h"

#include <gtest/gtest.h>

#include "storage/images/images_test_support.h"

namespace carrel::storage {
namespace {

TEST(Whiteouts, NamesSayWhatIsDeleted) {
  EXPECT_EQ(whiteout_of("a/b").value().kind, Whiteout::Kind::kNone);
  EXPECT_EQ(whiteout_of("a/.wh.b").value().path, "a/b");
  EXPECT_EQ(whiteout_of(".wh.b").value().path, "b");
  EXPECT_EQ(whiteout_of("a/.wh..wh..opq").value().kind, Whiteout::Kind::kOpaque);
  EXPECT_EQ(whiteout_of("a/.wh..wh..opq").value().path, "a");
  EXPECT_EQ(whiteout_of(".wh..wh.plnk").value().kind, Whiteout::Kind::kIgnored);
  for (const char* path : {".wh.", "a/.wh.", ".wh..", "a/.wh..", ".wh...", "a/.wh..."}) {
    EXPECT_FALSE(whiteout_of(path).ok()) << path;
  }
}

TEST(Whiteouts, AreReadStrictly) {
  const std::string good = encode_whiteout({Whiteout::Kind::kDelete, "a/b"}) +
                           encode_whiteout({Whiteout::Kind::kOpaque, ""});
  const auto read = decode_whiteouts(good);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read.value().size(), 2U);
  EXPECT_EQ(read.value()[0].path, "a/b");
  EXPECT_EQ(read.value()[1].kind, Whiteout::Kind::kOpaque);
  using namespace std::string_literals;
  for (const std::string& text : {"da"s, "xa\0"s, "d\0"s, "\0"s, "d../x\0"s, "d/a\0"s, "da/\0"s}) {
    EXPECT_FALSE(decode_whiteouts(text).ok()) << text;
  }
}

class LayerTest : public testing::Test {
 protected:
  void make_layer(const std::string& name, const std::string& whiteouts) {
    UniqueFd made = scratch_.directory(name + "/tree");
    scratch_.write(name + "/whiteouts", whiteouts);
  }
  Status apply(const std::string& name) {
    UniqueFd layer = scratch_.directory(name);
    return apply_layer(layer.get(), writer_);
  }
  Scratch scratch_;
  UniqueFd root_ = scratch_.directory("root");
  TreeWriter writer_{root_.get(), {}};
};

TEST_F(LayerTest, UpperLayersHideDeleteAndReplace) {
  make_layer("low", "");
  scratch_.write("low/tree/etc/kept", "low");
  scratch_.write("low/tree/etc/changed", "low");
  scratch_.write("low/tree/etc/deleted", "low");
  scratch_.write("low/tree/opaque/old", "low");
  scratch_.write("low/tree/dir/below/file", "low");
  std::filesystem::create_symlink("etc", scratch_ / "low/tree/link");
  make_layer("high", encode_whiteout({Whiteout::Kind::kDelete, "etc/deleted"}) +
                         encode_whiteout({Whiteout::Kind::kOpaque, "opaque"}) +
                         encode_whiteout({Whiteout::Kind::kDelete, "dir"}) +
                         encode_whiteout({Whiteout::Kind::kDelete, "was/never/there"}));
  scratch_.write("high/tree/etc/changed", "high");
  scratch_.write("high/tree/opaque/new", "high");
  scratch_.write("high/tree/link/file", "high");
  ASSERT_TRUE(apply("low").ok());
  Status applied = apply("high");
  ASSERT_TRUE(applied.ok()) << applied.error().to_string();
  EXPECT_EQ(scratch_.read("root/etc/kept"), "low");
  EXPECT_EQ(scratch_.read("root/etc/changed"), "high");
  EXPECT_FALSE(scratch_.exists("root/etc/deleted"));
  EXPECT_FALSE(scratch_.exists("root/opaque/old"));
  EXPECT_EQ(scratch_.read("root/opaque/new"), "high");
  EXPECT_FALSE(scratch_.exists("root/dir"));
  EXPECT_EQ(scratch_.read("root/link/file"), "high");
  EXPECT_FALSE(scratch_.exists("root/etc/file"));  // a directory takes the place of a link
  EXPECT_EQ(scratch_.read("low/tree/etc/deleted"), "low");
}

TEST_F(LayerTest, DeletionThroughALinkReachesNothingOutside) {
  scratch_.write("outside/file", "kept");
  make_layer("low", "");
  std::filesystem::create_symlink("../../outside", scratch_ / "low/tree/link");
  make_layer("high", encode_whiteout({Whiteout::Kind::kDelete, "link/file"}));
  make_layer("opaque", encode_whiteout({Whiteout::Kind::kOpaque, "link"}));
  ASSERT_TRUE(apply("low").ok());
  EXPECT_FALSE(apply("high").ok());
  ASSERT_TRUE(apply("opaque").ok());
  EXPECT_EQ(scratch_.read("outside/file"), "kept");
}

TEST_F(LayerTest, FilesOfARootAreItsOwn) {
  make_layer("low", "");
  scratch_.write("low/tree/a", "text");
  std::filesystem::create_hard_link(scratch_ / "low/tree/a", scratch_ / "low/tree/b");
  ::chmod((scratch_ / "low/tree/a").c_str(), 06711);
  ASSERT_TRUE(apply("low").ok());
  struct stat layer{};
  struct stat a{};
  struct stat b{};
  ASSERT_EQ(::stat((scratch_ / "low/tree/a").c_str(), &layer), 0);
  ASSERT_EQ(::stat((scratch_ / "root/a").c_str(), &a), 0);
  ASSERT_EQ(::stat((scratch_ / "root/b").c_str(), &b), 0);
  EXPECT_EQ(a.st_ino, b.st_ino);  // linked to one another, and to nothing else
  EXPECT_NE(a.st_ino, layer.st_ino);
  EXPECT_EQ(a.st_nlink, 2U);
  EXPECT_EQ(a.st_mode & 07777, 0755U);
  EXPECT_EQ(a.st_mtim.tv_sec, layer.st_mtim.tv_sec);
}

TEST_F(LayerTest, HolesStayHoles) {
  make_layer("low", "");
  const std::string file = scratch_.write("low/tree/sparse", "begin");
  ASSERT_EQ(::truncate(file.c_str(), 1L << 30), 0);
  ASSERT_TRUE(apply("low").ok());
  struct stat info{};
  ASSERT_EQ(::stat((scratch_ / "root/sparse").c_str(), &info), 0);
  EXPECT_EQ(info.st_size, 1L << 30);
  EXPECT_LT(info.st_blocks, 2048);
}

}  // namespace
}  // namespace carrel::storage
