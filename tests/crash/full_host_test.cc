// Workspaces of root on a host whose disk fills up: nothing is lost that was taken, whoever is
// killed, and there is room again when something is deleted.
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

// The same, without waiting for the disk: what is in memory when others fill it.
constexpr char kHastyWriter[] = R"(
import os, sys
number = 0
try:
    while True:
        with open('%06d' % number, 'wb') as file:
            file.write((b'%010d' % number) * 26214)
        number += 1
except OSError as error:
    print('full:', error.strerror, number, flush=True)
os.sync()
print('synced', flush=True)
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
    if (IsSkipped()) {
      return;
    }
    if (!as_root()) {
      GTEST_SKIP() << "an ordinary user's workspaces are folders of the host";
    }
    home_ = place().home(GetParam());
    const std::string image = home_ + ".img";
    const std::string make = "PATH=$PATH:/usr/sbin:/sbin; truncate -s 400M " + image +
                             " && mke2fs -q -t ext4 -m 1 " + image +
                             " > /dev/null && mount -o loop " + image + " " + home_;
    ASSERT_EQ(std::system(make.c_str()), 0);
    ::unlink(image.c_str());
    ASSERT_EQ(::chmod(home_.c_str(), 0700), 0);
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

  static std::string name(std::size_t number) { return "w" + std::to_string(number); }
  std::unique_ptr<Process> start(std::size_t number, const char* program) const {
    return std::make_unique<Process>(launch(
        {"run", "--workspace", name(number), "--timeout", "10m", "--", "python3", "-c", program}));
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
  for (std::size_t i = 2; i < writers(); ++i) {
    EXPECT_TRUE(all[i]->wait_for_output("full: No space left on device", 300s)) << all[i]->err();
  }
  // The databases go on, and so do those that have no workspace.
  EXPECT_EQ(carrel({"run", "--", "echo", "on"}).out, "on\n");
  const Run box = carrel({"create", "--name", "other"});
  EXPECT_EQ(box.status, 0) << box.err;
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
  EXPECT_EQ(carrel({"run", "--workspace", name(0), "--", "sh", "-c",
                    "head -c 20M /dev/urandom > more && sync && echo room"})
                .out,
            "room\n");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
  EXPECT_TRUE(eventually(20s, [&] { return loop_devices_of(GetParam()).empty(); }));
  for (std::size_t i = 0; i < writers(); ++i) {
    expect_sound(i);
  }
}

TEST_P(FullHost, WhatIsInMemoryFindsRoomToo) {
  std::vector<std::unique_ptr<Process>> all;
  for (std::size_t i = 0; i < writers(); ++i) {
    all.push_back(start(i, kHastyWriter));
  }
  for (std::size_t i = 0; i < writers(); ++i) {
    const Run run = all[i]->wait(300s);
    EXPECT_NE(run.out.find("full: No space left on device"), std::string::npos) << run.err;
    EXPECT_NE(run.out.find("synced"), std::string::npos) << run.out << run.err;
    const std::size_t at = run.out.find("device ");
    ASSERT_NE(at, std::string::npos) << run.out;
    expect_whole(i, std::to_string(std::atoi(run.out.c_str() + at + 7)));
    EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
  }
}

// What ext4 of the host's says when there is nothing left at all.
TEST_P(FullHost, ADamagedOneIsNotSnapshottedUntilItWasRestored) {
  const Box box(GetParam(), {"--workspace", "w"});
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
