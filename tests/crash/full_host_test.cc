// Workspaces of root on a host whose disk fills up: nothing is lost that was taken, whoever is
// killed, and there is room again when something is deleted. The host's disk is a file system in a
// file, in the mount namespace of the test.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "remains.h"
#include "support/box.h"
#include "support/fixture.h"
#include "support/host.h"
#include "support/workspace_files.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using namespace std::chrono_literals;

// Writes pieces that can be told from each other, and says each one's number when the disk has it.
constexpr char kWriter[] = R"(
import os, sys
number = 0
try:
    while True:
        with open('%06d' % number, 'wb') as file:
            file.write((b'%010d' % number) * 26214)
            file.flush()
            os.fsync(file.fileno())
        print(number, flush=True)
        number += 1
except OSError as error:
    print('full:', error.strerror, flush=True)
    sys.stdin.read()
)";

// How many of the first pieces are whole, and what is not.
constexpr char kReader[] = R"(
import os, sys
for number in range(int(sys.argv[1])):
    with open('%06d' % number, 'rb') as file:
        if file.read() != (b'%010d' % number) * 26214:
            print('lost', number)
print('read')
)";

std::size_t writers() {
  const char* given = std::getenv("CARREL_WRITERS");
  return given != nullptr ? static_cast<std::size_t>(std::atol(given)) : 4;
}

// The last number that was said, and one more.
std::string count_of(const std::string& said) {
  std::istringstream lines(said);
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    if (!line.empty() && line.find_first_not_of("0123456789") == std::string::npos) {
      count = std::atoi(line.c_str()) + 1;
    }
  }
  return std::to_string(count);
}

class FullHost : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (!IsSkipped() && !as_root()) {
      GTEST_SKIP() << "an ordinary user's workspaces are folders of the host";
    }
  }
  void TearDown() override {
    if (!home_.empty()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      kill_keepers();
      EXPECT_TRUE(eventually(20s, [] { return watches().empty(); }));
      EXPECT_EQ(::umount2(home_.c_str(), MNT_DETACH), 0);
    }
    CarrelTest::TearDown();
  }

  // The state directory is on a disk of that size from now on.
  void put_home_on(const std::string& size) {
    const std::string home = place().home(GetParam());
    const std::string image = home + ".img";
    const std::string make = "PATH=$PATH:/usr/sbin:/sbin; truncate -s " + size + " " + image +
                             " && mke2fs -q -t ext4 -m 1 " + image +
                             " > /dev/null && mount -o loop " + image + " " + home;
    ASSERT_EQ(std::system(make.c_str()), 0);
    ::unlink(image.c_str());
    home_ = home;
    ASSERT_EQ(::chmod(home_.c_str(), 0700), 0);
  }
  // Somebody else takes what is left of it.
  void fill() const {
    const std::string command = "dd if=/dev/zero of=" + home_ + "/other bs=64k 2> /dev/null";
    EXPECT_NE(std::system(command.c_str()), 0) << "the host's disk is to be full";
  }
  void make_room() const { EXPECT_EQ(::unlink((home_ + "/other").c_str()), 0); }
  // What the file of a workspace may still take of the host.
  std::int64_t unbacked(const std::string& workspace) const {
    struct stat disk{};
    EXPECT_EQ(::stat((home_ + "/workspaces/" + workspace + "/disk").c_str(), &disk), 0);
    return std::max<std::int64_t>(0, disk.st_size - disk.st_blocks * 512);
  }
  static std::string name(std::size_t number) { return "w" + std::to_string(number); }
  std::unique_ptr<Process> start(std::size_t number, const char* program) const {
    return std::make_unique<Process>(launch({"run", "--workspace", name(number), "--disk", "40m",
                                             "--timeout", "10m", "--", "python3", "-c", program}));
  }
  // What shares the room while the disk is filling up.
  static std::vector<HostProcess> watches() { return processes_of("disk-watch"); }
  void expect_whole(std::size_t number, const std::string& pieces) const {
    const Run read =
        carrel({"run", "--workspace", name(number), "--", "python3", "-c", kReader, pieces});
    EXPECT_EQ(read.out, "read\n") << name(number) << " of " << pieces << ": " << read.err;
  }
  // Nobody has it mounted: what e2fsck says of it.
  void expect_sound(std::size_t number) const {
    const std::string check = "PATH=$PATH:/usr/sbin:/sbin; e2fsck -p " + home_ + "/workspaces/" +
                              name(number) + "/disk > /dev/null && e2fsck -fn " + home_ +
                              "/workspaces/" + name(number) + "/disk";
    EXPECT_EQ(std::system((check + " > /dev/null 2>&1").c_str()), 0) << name(number);
  }

  std::string home_;
};
CARREL_AS_BOTH(FullHost);

TEST_P(FullHost, NothingThatWasTakenIsLostWhoeverIsKilled) {
  put_home_on(std::to_string(150 * writers()) + "M");
  std::vector<std::unique_ptr<Process>> all;
  for (std::size_t i = 0; i < writers(); ++i) {
    all.push_back(start(i, kWriter));
    ASSERT_TRUE(all.back()->wait_for_output("3\n", 30s)) << all.back()->err();
  }
  // Two of those who write, and what shares the room among them.
  for (std::size_t i = 0; i < 2; ++i) {
    all[i]->send(SIGKILL);
  }
  for (const HostProcess& watch : watches()) {
    ::kill(watch.pid, SIGKILL);
  }
  const Box box(GetParam(), {"--name", "other"});
  fill();
  for (std::size_t i = 2; i < writers(); ++i) {
    EXPECT_TRUE(all[i]->wait_for_output("full: No space left on device", 300s)) << all[i]->err();
  }
  // Those that have no workspace go on, and when there is room again the databases do.
  EXPECT_EQ(box.sh("echo on").out, "on\n");
  make_room();
  EXPECT_EQ(carrel({"rm", "--force", "other"}).status, 0);
  std::vector<std::string> counts;
  for (const auto& one : all) {
    const Run run = one->wait(60s);
    EXPECT_EQ(run.err, "");
    counts.push_back(count_of(run.out));
  }
  for (std::size_t i = 0; i < writers(); ++i) {
    EXPECT_NE(counts[i], "0");
    expect_whole(i, counts[i]);
  }
  EXPECT_EQ(carrel({"run", "--workspace", name(2), "--", "sh", "-c", "rm *"}).status, 0);
  EXPECT_EQ(carrel({"run", "--workspace", name(2), "--", "sh", "-c",
                    "head -c 20M /dev/urandom > more && sync && echo room"})
                .out,
            "room\n");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
  // It mounts each of them for a moment when it ends.
  EXPECT_TRUE(eventually(20s, [] { return watches().empty(); }));
  EXPECT_TRUE(eventually(20s, [&] { return loop_devices_of(GetParam()).empty(); }));
  for (std::size_t i = 0; i < writers(); ++i) {
    expect_sound(i);
  }
}

// On a small disk its room is set aside when it is mounted.
TEST_P(FullHost, OneThatIsMountedGetsAllThatItIsPromised) {
  put_home_on("400M");
  const Box box(GetParam(), {"--workspace", "w", "--disk", "100m", "--require", "disk"});
  EXPECT_EQ(unbacked("w"), 0);
  fill();
  EXPECT_EQ(box.sh("head -c 90000000 /dev/urandom > f && sync f && sha256sum f > s && sync s && "
                   "sha256sum --quiet -c s && echo whole")
                .out,
            "whole\n");
  const Run refused = carrel({"snapshot", "w"});
  EXPECT_EQ(refused.status, 125) << "for that the host has no room";
  EXPECT_TRUE(says_one_line(refused, "No space left on device")) << refused.err;
  make_room();
  EXPECT_EQ(carrel({"snapshot", "w"}).status, 0);
  EXPECT_EQ(box.sh("rm f").status, 0);
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_TRUE(eventually(30s, [&] { return unbacked("w") > 80'000'000; }))
      << "what it does not hold is the host's again: " << unbacked("w");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
}

TEST_P(FullHost, OneThatIsMountedTooLateTakesNothingNew) {
  put_home_on("400M");
  ASSERT_EQ(bash("head -c 20000000 /dev/urandom > f; sha256sum f > s",
                 {"--workspace", "w", "--disk", "100m"})
                .status,
            0);
  ASSERT_TRUE(eventually(30s, [&] { return unbacked("w") > 60'000'000; })) << unbacked("w");
  fill();
  EXPECT_EQ(bash("sha256sum --quiet -c s && echo whole", {"--workspace", "w"}).out, "whole\n");
  const Run full = bash("head -c 1000000 /dev/zero > more; echo still", {"--workspace", "w"});
  EXPECT_EQ(full.out, "still\n");
  EXPECT_NE(full.err.find("No space left on device"), std::string::npos) << full.err;
  make_room();
  const Box box(GetParam(), {"--workspace", "w"});
  EXPECT_TRUE(eventually(20s, [&] {
    return box.sh("head -c 1000000 /dev/zero > more && sync && echo room").out == "room\n";
  }));
  EXPECT_EQ(box.sh("sha256sum --quiet -c s && echo whole").out, "whole\n");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
}

// On a large one it stays sparse, until the rest is soon gone.
TEST_P(FullHost, WhatIsPromisedIsSetAsideBeforeOthersTakeIt) {
  put_home_on("12G");
  const Box box(GetParam(), {"--workspace", "w", "--disk", "1g", "--require", "disk"});
  EXPECT_EQ(box.sh("head -c 10000000 /dev/urandom > f; sync").status, 0);
  EXPECT_GE(unbacked("w"), 1'000'000'000) << "it takes what it holds";
  // As fast as a disk may be: 2 GB in a second.
  const std::string others = home_ + "/other";
  std::filesystem::create_directory(others);
  for (int i = 0; i < 200; ++i) {
    const std::string more =
        "fallocate -l 100M " + others + "/" + std::to_string(i) + " 2> /dev/null";
    if (std::system(more.c_str()) != 0) {
      break;
    }
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_EQ(unbacked("w"), 0);
  EXPECT_EQ(box.sh("head -c 200000000 /dev/urandom > g && sync g && echo whole").out, "whole\n");
  std::filesystem::remove_all(others);
  EXPECT_EQ(box.sh("rm g; sync").status, 0);
  EXPECT_TRUE(eventually(30s, [&] { return unbacked("w") > 1'000'000'000; }))
      << "where there is plenty it is sparse again: " << unbacked("w");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
}

// What ext4 of the host's says when there is nothing left at all.
TEST_P(FullHost, ADamagedOneIsNotSnapshottedUntilItWasRestored) {
  put_home_on("400M");
  const Box box(GetParam(), {"--workspace", "w", "--disk", "40m"});
  ASSERT_EQ(box.sh("echo good > file; sync").status, 0);
  const Run first = carrel({"snapshot", "w"});
  ASSERT_EQ(first.status, 0) << first.err;
  const std::string id = first.out.substr(0, first.out.find('\n'));
  // As if a block had been lost.
  const std::string device = loop_devices_of(GetParam());
  const std::size_t at = device.find("loop");
  ASSERT_NE(at, std::string::npos) << device;
  const std::string short_name = device.substr(at, device.find_first_of(": \n", at) - at);
  std::ofstream("/sys/fs/ext4/" + short_name + "/trigger_fs_error") << "of a test";
  const Run refused = carrel({"snapshot", "w"});
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "no snapshot is taken of the workspace 'w'")) << refused.err;
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_TRUE(eventually(20s, [&] { return loop_devices_of(GetParam()).empty(); }));
  EXPECT_EQ(carrel({"snapshot", "w"}).status, 125) << "it is remembered";
  const Run restored = carrel({"restore", "w", id});
  EXPECT_EQ(restored.status, 0) << restored.err;
  EXPECT_EQ(bash("cat file", {"--workspace", "w"}).out, "good\n");
  EXPECT_EQ(carrel({"snapshot", "w"}).status, 0);
}

}  // namespace
}  // namespace carrel::test
