#include "tools/danger.h"

#include <gtest/gtest.h>

namespace carrel::tools {
namespace {

// R168
TEST(DangerTest, WhatIsHardlyEverMeantIsNoticedHoweverItIsWritten) {
  for (const char* command : {"rm -rf /",
                              "rm -fr /",
                              "rm -r -f /",
                              "rm  -rf  /",
                              "rm -Rf /",
                              "rm --recursive --force /",
                              "sudo rm -rf /",
                              "/bin/rm -rf /*",
                              "rm -rf --no-preserve-root //",
                              "cd /tmp; rm -rf /",
                              "true && rm -rf '/'",
                              "X=1 rm -rf /",
                              "bash -c 'rm -rf /'",
                              "chmod -R 777 /",
                              "chown -R nobody /",
                              "chmod --recursive 777 /",
                              "find / -delete",
                              "find / -exec rm {} +",
                              "mkfs.ext4 /dev/sda1",
                              "mkfs -t ext4 /dev/sda",
                              "dd if=/dev/zero of=/dev/sda",
                              "cat x > /dev/nvme0n1",
                              "cat x >/dev/sda",
                              ":(){ :|:& };:",
                              ":() { : | : & } ; :",
                              "bomb() { bomb | bomb & }; bomb",
                              "python3 -c 'import shutil; shutil.rmtree(\"/\")'"}) {
    EXPECT_NE(advice_about(command), "") << command;
  }
}

// R168
TEST(DangerTest, OrdinaryCommandsAreNot) {
  for (const char* command : {"rm -rf /tmp/x",
                              "rm -rf /workspace/build",
                              "rm -rf ./",
                              "rm file /",
                              "rm -rf build/",
                              "echo mkfs",
                              "man mkfs",
                              "grep -r mkfs .",
                              "echo 'rm -rf /'",
                              "# rm -rf /",
                              "dd if=/dev/zero of=disk.img",
                              "chmod -R 755 /workspace",
                              "find / -name x",
                              "find . -delete",
                              "ls /",
                              "f() { echo hi; }; f",
                              "git commit -m 'do not rm -rf / here'",
                              "echo x > /dev/null",
                              "cat /dev/null > out",
                              ""}) {
    EXPECT_EQ(advice_about(command), "") << command;
  }
}

TEST(DangerTest, AnyBytesAreRead) {
  EXPECT_EQ(advice_about(std::string(1 << 20, '\'')), "");
  EXPECT_EQ(advice_about("\xff\xfe\\"), "");
  EXPECT_EQ(advice_about("\"unfinished \\"), "");
}

}  // namespace
}  // namespace carrel::tools
