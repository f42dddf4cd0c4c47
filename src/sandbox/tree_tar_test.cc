#include "sandbox/tree_tar.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "sandbox/tar_block.h"
#include "sandbox/tree_test_support.h"

namespace carrel::sandbox {
namespace {

using protocol::FileEntry;
using protocol::FileKind;

const Progress kQuiet;

// A tar by hand, so that it can say what no tool would.
class Tar {
 public:
  Tar& add(char type, const std::string& name, const std::string& data = "",
           const std::string& target = "", unsigned mode = 0644) {
    TarBlock block{};
    std::memcpy(block.name, name.data(), std::min<std::size_t>(name.size(), 100));
    put_octal(block.mode, mode);
    put_octal(block.size, data.size());
    put_octal(block.modified, 1'000'000);
    std::memcpy(block.target, target.data(), std::min<std::size_t>(target.size(), 100));
    std::memcpy(block.magic, "ustar\0", 6);
    block.type = type;
    std::snprintf(block.checksum, sizeof block.checksum, "%06o", block.sum());
    bytes_.append(reinterpret_cast<const char*>(&block), TarBlock::kSize);
    bytes_ += data + std::string((512 - data.size() % 512) % 512, '\0');
    return *this;
  }
  [[nodiscard]] std::string bytes() const { return bytes_ + std::string(1024, '\0'); }

 private:
  std::string bytes_;
};

Files::Source from(std::string_view bytes) {
  return [bytes](char* place, std::size_t size) mutable -> Result<std::size_t> {
    const std::size_t piece = std::min({size, bytes.size(), std::size_t{700}});
    std::memcpy(place, bytes.data(), piece);
    bytes.remove_prefix(piece);
    return piece;
  };
}

struct Fed {
  std::string told;
  std::vector<LeftOutFile> left_out;
  Status status;
};

Fed feed(const std::string& bytes) {
  Fed fed;
  const Files::Source source = from(bytes);
  fed.told = told_by([&](TreeFeed& tree) { return feed_tar(source, tree, fed.left_out, kQuiet); },
                     fed.status);
  return fed;
}

std::string gzip(const std::string& bytes) {
  std::string packed(bytes.size() + 1024, '\0');
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<unsigned>(bytes.size());
  stream.next_out = reinterpret_cast<unsigned char*>(packed.data());
  stream.avail_out = static_cast<unsigned>(packed.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return packed;
}

TEST(FeedTar, TellsFilesDirectoriesAndLinks) {
  const std::string tar = Tar()
                              .add('5', "d/", "", "", 0755)
                              .add('0', "d/a", "text", "", 04755)
                              .add('2', "d/l", "", "/etc/passwd")
                              .add('1', "d/h", "", "d/a")
                              .bytes();
  const std::string told =
      "dir:d 755;file:d/a 755'text';link:d/l 644 -> /etc/passwd;hard:d/h 644 -> d/a";
  Fed fed = feed(tar);
  EXPECT_TRUE(fed.status.ok());
  EXPECT_EQ(fed.told, told);
  EXPECT_TRUE(fed.left_out.empty());
  EXPECT_EQ(feed(gzip(tar)).told, told);
}

// B07
TEST(FeedTar, WhatLeadsOutOrIsNoFileIsLeftOutAndListed) {
  Fed fed = feed(Tar()
                     .add('0', "../x", "evil")
                     .add('0', "a/../../x", "evil")
                     .add('3', "null")
                     .add('4', "disk")
                     .add('6', "pipe")
                     .add('1', "h", "", "../../etc/passwd")
                     .add('0', "/abs", "contained")
                     .add('0', "C:\\x", "a name")
                     .add('0', "after", "fine")
                     .bytes());
  EXPECT_TRUE(fed.status.ok());
  EXPECT_EQ(fed.told, "file:abs 644'contained';file:C:\\x 644'a name';file:after 644'fine'");
  ASSERT_EQ(fed.left_out.size(), 6U);
  EXPECT_EQ(fed.left_out[0].path, "../x");
  EXPECT_EQ(fed.left_out[2].path, "null");
}

TEST(FeedTar, LongNamesComeFromGnuAndFromPax) {
  const std::string name = std::string(150, 'n') + "/" + std::string(90, 'm');
  EXPECT_EQ(feed(Tar().add('L', "././@LongLink", name + '\0').add('0', "cut", "x").bytes()).told,
            "file:" + name + " 644'x'");
  const std::string record = " path=" + name + "\n";
  const std::string pax = std::to_string(record.size() + 3) + record;
  EXPECT_EQ(feed(Tar().add('x', "pax", pax).add('0', "cut", "x").bytes()).told,
            "file:" + name + " 644'x'");
  std::string deep;
  for (int i = 0; i < 5000; ++i) {
    deep += "d/";
  }
  Fed fed = feed(Tar().add('L', "l", deep).add('0', "cut", "x").add('0', "b", "y").bytes());
  EXPECT_EQ(fed.told, "file:b 644'y'");
  EXPECT_EQ(fed.left_out.size(), 1U);
}

TEST(FeedTar, DirectoriesThatMayNotBeWrittenAreClosedAtTheEnd) {
  EXPECT_EQ(feed(Tar().add('5', "d", "", "", 0555).add('0', "d/f", "x").bytes()).told,
            "dir:d 555;file:d/f 644'x';end:d 555");
}

TEST(FeedTar, ABrokenArchiveIsAnError) {
  const std::string good = Tar().add('0', "a", std::string(2000, 'x')).bytes();
  EXPECT_FALSE(feed("").status.ok());
  EXPECT_FALSE(feed("no tar at all").status.ok());
  EXPECT_FALSE(feed(std::string(512, 'x')).status.ok());
  EXPECT_FALSE(feed(good.substr(0, 1000)).status.ok());
  EXPECT_FALSE(feed(gzip(good).substr(0, 60)).status.ok());
  std::string wrong = good;
  wrong[3] = 'y';
  EXPECT_FALSE(feed(wrong).status.ok());
  EXPECT_FALSE(feed(Tar().add('x', "pax", "99999 path=x\n").bytes()).status.ok());
  EXPECT_FALSE(feed(Tar().add('x', "pax", "20 size=99999999999999999999\n").bytes()).status.ok());
}

TEST(TarSink, WritesWhatFeedTarReads) {
  std::string tar;
  TarSink sink("top", [&tar](std::string_view data) -> Status {
    tar += data;
    return {};
  });
  const std::string name(200, 'n');
  const auto add = [&sink](FileKind kind, std::string_view path, std::uint64_t size = 0,
                           std::string_view target = {}) {
    FileEntry entry;
    entry.kind = kind;
    entry.mode = 0750;
    entry.path = path;
    entry.size = size;
    entry.target = target;
    EXPECT_TRUE(sink.entry(entry).ok());
  };
  add(FileKind::kDirectory, "");
  add(FileKind::kFile, name, 4);
  EXPECT_TRUE(sink.contents("text").ok());
  add(FileKind::kFile, "shrank", 1000);
  EXPECT_TRUE(sink.contents("x").ok());
  add(FileKind::kLink, "l", 0, name);
  add(FileKind::kDirectoryEnd, "");
  EXPECT_TRUE(sink.finish().ok());
  EXPECT_EQ(tar.size() % 512, 0U);
  Fed fed = feed(tar);
  EXPECT_TRUE(fed.status.ok()) << fed.status.error().to_string();
  EXPECT_EQ(fed.told.substr(0, 40), "dir:top 750;file:top/" + std::string(19, 'n'));
  EXPECT_NE(fed.told.find("link:top/l 750 -> " + name), std::string::npos);
}

}  // namespace
}  // namespace carrel::sandbox
