#include "backends/microvm/boot_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

namespace carrel::microvm {
namespace {

class BootFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/bootfiles.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    top_ = pattern;
    const std::string folders = "mkdir -p " + top_ + "/boot " + top_ + "/lib/modules/9.9-cloud";
    ASSERT_EQ(std::system(folders.c_str()), 0);
    std::string image(0x400, '\0');
    image.replace(0x202, 4, "HdrS");
    image[0x20e] = 0x40;  // at 0x240
    image.replace(0x240, 18, "9.9-cloud (me) #1 ");
    write("boot/vmlinuz", image);
  }
  void TearDown() override {
    const std::string command = "rm -rf " + top_;
    EXPECT_EQ(std::system(command.c_str()), 0);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(top_ + "/" + name, std::ios::binary) << text;
  }
  void module(const std::string& name, const std::string& depends) const {
    write("lib/modules/9.9-cloud/" + name + ".ko",
          std::string("ELF\0license=x\0", 14) + "depends=" + depends + std::string(1, '\0'));
  }

  std::string top_;
};

TEST_F(BootFilesTest, AKernelTellsItsReleaseAndHasItsModulesBesideIt) {
  write("lib/modules/9.9-cloud/modules.order", "");
  const auto kernel = find_kernel(top_ + "/boot/vmlinuz");
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(kernel.value().release, "9.9-cloud");
  EXPECT_EQ(kernel.value().modules, top_ + "/lib/modules/9.9-cloud");
}

TEST_F(BootFilesTest, WhatIsNoKernelIsRefused) {
  write("boot/other", "not a kernel");
  const auto kernel = find_kernel(top_ + "/boot/other");
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code, Code::kUnsupported);
  EXPECT_NE(kernel.error().hint.find("linux-image-cloud-amd64"), std::string::npos);
  EXPECT_FALSE(find_kernel(top_ + "/boot/missing").ok());
}

TEST_F(BootFilesTest, ModulesComeAfterThoseTheyNeed) {
  write("lib/modules/9.9-cloud/modules.order",
        "virtio_mmio.ko\nvirtio_pci.ko\nvirtio_blk.ko\nvirtio_console.ko\noverlay.ko\n"
        "virtio-ring.ko\nvirtio.ko\n");
  write("lib/modules/9.9-cloud/modules.builtin", "kernel/fs/erofs/erofs.ko\n");
  module("virtio_mmio", "virtio,virtio-ring");
  module("virtio_pci", "virtio");
  module("virtio_blk", "virtio,virtio_ring");
  module("virtio_console", "virtio");
  module("overlay", "");
  module("virtio-ring", "virtio");
  module("virtio", "");
  const auto kernel = find_kernel(top_ + "/boot/vmlinuz");
  ASSERT_TRUE(kernel.ok());
  const auto modules = modules_of(kernel.value(), {});
  ASSERT_TRUE(modules.ok()) << modules.error().to_string();
  const std::string folder = top_ + "/lib/modules/9.9-cloud/";
  const std::vector<std::string> expected = {
      folder + "virtio.ko",     folder + "virtio-ring.ko", folder + "virtio_mmio.ko",
      folder + "virtio_pci.ko", folder + "virtio_blk.ko",  folder + "virtio_console.ko",
      folder + "overlay.ko"};
  EXPECT_EQ(modules.value(), expected);
}

// What a kernel says that is not compressed.
TEST_F(BootFilesTest, AProgramTellsItsReleaseToo) {
  std::string program(200, '\0');
  program.replace(0, 7,
                  "\x7f"
                  "ELF\2\1\1");
  program[16] = 2;
  program[18] = 62;
  write("boot/vmlinux", program + "Linux version 9.9-cloud (me)");
  const auto kernel = find_kernel(top_ + "/boot/vmlinux");
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(kernel.value().release, "9.9-cloud");
  write("boot/other", program);
  EXPECT_FALSE(find_kernel(top_ + "/boot/other").ok());
  write("boot/bad", program + "Linux version ../../etc (me)");
  EXPECT_FALSE(find_kernel(top_ + "/boot/bad").ok());
}

TEST_F(BootFilesTest, AMachineWithoutASerialPortHasTheModuleOfItsSocket) {
  write("lib/modules/9.9-cloud/modules.order", "vmw_vsock_virtio_transport.ko\n");
  write("lib/modules/9.9-cloud/modules.builtin",
        "virtio_mmio.ko\nvirtio_pci.ko\nvirtio_blk.ko\nerofs.ko\noverlay.ko\n");
  module("vmw_vsock_virtio_transport", "");
  const auto kernel = find_kernel(top_ + "/boot/vmlinuz");
  ASSERT_TRUE(kernel.ok());
  MachineParts parts;
  EXPECT_FALSE(modules_of(kernel.value(), parts).ok()) << "there is no virtio_console";
  parts.line = MachineParts::Line::kVsock;
  const auto modules = modules_of(kernel.value(), parts);
  ASSERT_TRUE(modules.ok()) << modules.error().to_string();
  ASSERT_EQ(modules.value().size(), 1U);
  EXPECT_TRUE(modules.value()[0].ends_with("/vmw_vsock_virtio_transport.ko"));
  EXPECT_EQ(terms_of(parts), "once\n");
}

TEST_F(BootFilesTest, AModuleThatIsMissingIsNamed) {
  write("lib/modules/9.9-cloud/modules.order", "virtio_mmio.ko\n");
  module("virtio_mmio", "");
  const auto kernel = find_kernel(top_ + "/boot/vmlinuz");
  ASSERT_TRUE(kernel.ok());
  const auto modules = modules_of(kernel.value(), {});
  ASSERT_FALSE(modules.ok());
  EXPECT_NE(modules.error().message.find("virtio_pci"), std::string::npos);
}

TEST_F(BootFilesTest, WhatNotEveryMachineHasIsInItsTerms) {
  EXPECT_EQ(terms_of({}), "once\n");
  using Tree = MachineParts::Tree;
  EXPECT_EQ(terms_of({MachineParts::Clients::kListens, "ID", {Tree::kFolder, Tree::kFile}}),
            "listens\nnetwork ID\nfolder\nfile\n");
}

TEST_F(BootFilesTest, AnArchiveIsWhatTheKernelUnpacks) {
  const std::string archive = make_archive({{"init", "program", 0755}, {"a", "12345", 0644}});
  EXPECT_TRUE(archive.starts_with("070701"));
  EXPECT_EQ(archive.substr(14, 8), "000081ED");  // a file, 0755
  EXPECT_EQ(archive.substr(54, 8), "00000007");
  EXPECT_EQ(archive.substr(110, 5), std::string("init\0", 5));
  EXPECT_EQ(archive.substr(116, 7), "program");
  EXPECT_EQ(archive.substr(124, 6), "070701");
  EXPECT_NE(archive.find("TRAILER!!!"), std::string::npos);
  EXPECT_EQ(archive.size() % 4, 0U);
}

}  // namespace
}  // namespace carrel::microvm
