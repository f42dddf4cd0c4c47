#include "backends/microvm/module_file.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstdlib>
#include <fstream>

namespace carrel::microvm {
namespace {

class ModuleFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/modulefile.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
  }
  void TearDown() override {
    const std::string command = "rm -rf " + top_;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(top_ + "/" + name, std::ios::binary) << text;
  }
  // As large as a module, of which the greater part is the same.
  static std::string content() {
    std::string text(300'000, 'm');
    for (std::size_t i = 0; i < text.size(); i += 7) {
      text[i] = static_cast<char>(i * i % 251);
    }
    return text;
  }
  // Compresses a file of these bytes as the kernel's build does.
  void write_xz(const std::string& name, const std::string& text) const {
    write(name, text);
    const std::string command = "xz --check=crc32 " + top_ + "/" + name;
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static std::string zstd(const std::string& text) {
    std::string out(::ZSTD_compressBound(text.size()), '\0');
    out.resize(::ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
  }

  std::string top_;
};

TEST_F(ModuleFileTest, APlainOneIsReadAsItIs) {
  write("a.ko", content());
  const auto module = read_module(top_ + "/a.ko");
  ASSERT_TRUE(module.ok()) << module.error().to_string();
  EXPECT_EQ(module.value(), content());
}

TEST_F(ModuleFileTest, CompressedOnesAreUnpacked) {
  write_xz("a.ko", content());
  write("b.ko.zst", zstd(content()));
  for (const char* name : {"/a.ko", "/b.ko"}) {
    const auto module = read_module(top_ + name);
    ASSERT_TRUE(module.ok()) << name << ": " << module.error().to_string();
    EXPECT_EQ(module.value(), content()) << name;
  }
}

// Zeros become so small that the usual room is far from enough.
TEST_F(ModuleFileTest, HowMuchItWasCompressedDoesNotMatter) {
  const std::string zeros(8U << 20, '\0');
  write_xz("a.ko", zeros);
  write("b.ko.zst", zstd(zeros));
  for (const char* name : {"/a.ko", "/b.ko"}) {
    const auto module = read_module(top_ + name);
    ASSERT_TRUE(module.ok()) << name << ": " << module.error().to_string();
    EXPECT_EQ(module.value(), zeros) << name;
  }
}

TEST_F(ModuleFileTest, DamagedTooLargeAndMissingOnesAreRefusedByName) {
  write("a.ko.xz", "no xz");
  write("b.ko.zst", zstd(content()).substr(0, 1000));
  write_xz("c.ko", std::string(17U << 20, '\0'));
  write("e.ko.zst", zstd(std::string(17U << 20, '\0')));
  for (const char* name : {"/a.ko", "/b.ko", "/c.ko", "/d.ko", "/e.ko"}) {
    const auto module = read_module(top_ + name);
    ASSERT_FALSE(module.ok()) << name;
    EXPECT_EQ(module.error().code, Code::kUnsupported) << name;
    EXPECT_NE(module.error().message.find(top_ + name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace carrel::microvm
