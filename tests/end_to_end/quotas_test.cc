// A workspace that root makes has a file system of its own: its size and its number of files are
// held by the kernel, and nobody is ended.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/box.h"
#include "support/fixture.h"
#include "support/workspace_files.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Quotas : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (!IsSkipped() && !as_root()) {
      GTEST_SKIP() << "an ordinary user cannot mount a file";
    }
  }
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      EXPECT_EQ(carrel({"workspace", "prune", "--older-than", "1ms"}).status, 0);
      EXPECT_TRUE(fs::is_empty(place().home(GetParam()) + "/workspaces"));
      EXPECT_TRUE(eventually(std::chrono::seconds(5), [&] {
        return loop_devices_of(GetParam()).empty();
      })) << loop_devices_of(GetParam());
    }
    CarrelTest::TearDown();
  }

  // As on a host that lacks a file.
  Run without(const std::string& file, std::vector<std::string> words) const {
    Launch wrapped = launch(std::move(words));
    wrapped.arguments.insert(
        wrapped.arguments.begin(),
        {"--mount", "--propagation", "private", "sh", "-c",
         "mount --bind /dev/null \"$0\" && exec \"$@\"", file, wrapped.program});
    wrapped.program = "/usr/bin/unshare";
    return Process(wrapped).wait(std::chrono::seconds(60));
  }
  std::string says(const std::vector<std::string>& words) const {
    const Run run = carrel(words);
    EXPECT_EQ(run.status, 0) << words[0] << ": " << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }
  // What holds the size of a sandbox's disk.
  std::string held_by(const std::string& id) const {
    const json info =
        json::parse(carrel({"info", id, "--enforcement", "--json"}).out, nullptr, false);
    for (const json& row : info.value("enforcement", json::array())) {
      if (row.value("name", "") == "disk") {
        return row.value("by", "");
      }
    }
    return info.dump();
  }
  // What the host has given to the files of a workspace.
  std::uint64_t taken_by(const std::string& workspace) const {
    struct stat info{};
    const std::string file = place().home(GetParam()) + "/workspaces/" + workspace + "/disk";
    EXPECT_EQ(::stat(file.c_str(), &info), 0) << file;
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
  }
};
CARREL_AS_BOTH(Quotas);

constexpr char kFill[] =
    "dd if=/dev/zero of=large bs=1M count=100 2>&1 | tail -4; "
    "sync; wc -c < large";

TEST_P(Quotas, R57_AFullWorkspaceSaysSoAndTakesWhatItHolds) {
  const Box box(GetParam(), {"--workspace", "w", "--disk", "20m", "--require", "disk"});
  EXPECT_EQ(held_by(box.id()), "loop");
  const std::uint64_t before = taken_by("w");
  EXPECT_LE(before, 4U << 20) << "it grows with what is written";
  const Run full = box.sh(kFill);
  EXPECT_NE(full.out.find("No space left on device"), std::string::npos) << full.out << full.err;
  const long size =
      std::atol(full.out.substr(full.out.rfind('\n', full.out.size() - 2) + 1).c_str());
  EXPECT_GE(size, (20L << 20) - (1 << 20));
  EXPECT_LE(size, (20L << 20) + (3 << 20));
  EXPECT_GE(taken_by("w"), 20U << 20);
  EXPECT_LE(taken_by("w"), 28U << 20);
  EXPECT_EQ(box.sh("echo awake; rm large; echo more > small && cat small").out, "awake\nmore\n")
      << "nobody is ended, and there is room again";
  EXPECT_TRUE(eventually(std::chrono::seconds(20), [&] { return taken_by("w") <= 12U << 20; }))
      << "what was deleted is the host's again: " << taken_by("w");
}

TEST_P(Quotas, R57_TheNumberOfFilesIsHeldToo) {
  const Box box(GetParam(), {"--workspace", "w", "--disk", "20m"});
  const Run full = box.sh(
      "mkdir d; python3 -c \"import os\nfor i in range(20000):\n"
      " os.close(os.open('d/%d' % i, os.O_CREAT | os.O_WRONLY))\" 2>&1 | tail -1; find d -mindepth "
      "1 | wc -l");
  EXPECT_NE(full.out.find("No space left on device"), std::string::npos) << full.out << full.err;
  const long files =
      std::atol(full.out.substr(full.out.rfind('\n', full.out.size() - 2) + 1).c_str());
  EXPECT_GE(files, 5000);
  EXPECT_LE(files, 6000);
  EXPECT_EQ(box.sh("rm -r d; echo x > f; cat f").out, "x\n");
}

TEST_P(Quotas, AFullWorkspaceCanBeSnapshottedAndRestored) {
  const Box box(GetParam(), {"--workspace", "w", "--disk", "20m"});
  // Nearly full of one thing, then of another: both are never there at once.
  ASSERT_EQ(box.sh("head -c 15M /dev/urandom > one; ln -s one link; mkdir d; echo x > d/x").status,
            0);
  const std::string sum = box.sh("sha256sum one").out;
  const std::string id = says({"snapshot", "w"});
  ASSERT_EQ(box.sh("rm one link; head -c 15M /dev/urandom > two; ln -s two link; rm -r d").status,
            0);
  (void)box.sh(
      "dd if=/dev/zero of=rest bs=64k 2>/dev/null; python3 -c \"import os\nfor i in range(20000):\n"
      " os.close(os.open('n%d' % i, os.O_CREAT | os.O_WRONLY))\" 2>/dev/null");
  const std::string full = says({"snapshot", "w"});
  EXPECT_EQ(says({"restore", "w", id}), id);
  EXPECT_EQ(box.sh("sha256sum one").out, sum);
  EXPECT_EQ(box.sh("ls; readlink link; cat d/x").out, "d\nlink\none\none\nx\n");
  EXPECT_EQ(carrel({"diff", "w", "--names"}).out, "");
  EXPECT_EQ(says({"restore", "w", full}), full);
  EXPECT_EQ(box.sh("wc -c < two; readlink link").out, "15728640\ntwo\n");
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0);
}

TEST_P(Quotas, AForkHasItsOwn) {
  const Box box(GetParam(), {"--workspace", "w", "--disk", "20m"});
  ASSERT_EQ(box.sh("head -c 10M /dev/zero > mine; mkdir d; echo x > d/x").status, 0);
  const std::string fork = says({"fork", "w", "--workspace", "f"});
  EXPECT_EQ(held_by(fork), "loop");
  const Run full = carrel({"sh", fork, kFill});
  EXPECT_NE(full.out.find("No space left on device"), std::string::npos) << full.out << full.err;
  EXPECT_EQ(carrel({"sh", fork, "rm large; echo y > d/x; ls; cat d/x"}).out, "d\nmine\ny\n");
  EXPECT_EQ(box.sh("cat d/x; head -c 5M /dev/zero > more && echo room").out, "x\nroom\n");
  const std::string taken = says({"snapshot", fork});
  EXPECT_EQ(carrel({"rm", "--force", fork}).status, 0);
  EXPECT_EQ(bash("rm -r d; ls", {"--workspace", "f"}).out, "mine\n");
  EXPECT_EQ(says({"restore", "f", taken}), taken);
  EXPECT_EQ(bash("ls; cat d/x", {"--workspace", "f"}).out, "d\nmine\ny\n");
}

TEST_P(Quotas, NobodyOutsideSeesTheMountAndItEndsWithItsLastUser) {
  const std::set<std::string> mounts = mounts_here();
  const Box box(GetParam(), {"--workspace", "w", "--disk", "20m"});
  EXPECT_NE(loop_devices_of(GetParam()), "");
  EXPECT_EQ(harm_to_mounts(mounts, mounts_here()), "");
  const Run options = box.sh("grep ' /workspace ext4 ' /proc/mounts");
  EXPECT_NE(options.out.find("nosuid,nodev"), std::string::npos) << options.out;
  EXPECT_EQ(options.out.find(place().home(GetParam())), std::string::npos) << options.out;
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_TRUE(
      eventually(std::chrono::seconds(5), [&] { return loop_devices_of(GetParam()).empty(); }));
}

TEST_P(Quotas, ManyAtOnceAreOneFileSystem) {
  const std::vector<std::string> shared = {"--workspace", "w", "--disk", "20m",
                                           "--share-workspace"};
  const Box one(GetParam(), shared);
  const Box two(GetParam(), shared);
  EXPECT_EQ(one.sh("echo x > f").status, 0);
  EXPECT_EQ(two.sh("cat f; echo y > f").out, "x\n");
  EXPECT_EQ(one.sh("cat f").out, "y\n");
  const std::string devices = loop_devices_of(GetParam());
  EXPECT_EQ(std::count(devices.begin(), devices.end(), '\n'), 1) << devices;
  EXPECT_EQ(carrel({"snapshot", "w"}).status, 0);
}

TEST_P(Quotas, OneThatIsTooLargeForTheHostIsWatchedInstead) {
  const Box box(GetParam(), {"--workspace", "w", "--disk", "100000g"});
  EXPECT_EQ(held_by(box.id()), "watchdog");
  EXPECT_EQ(box.sh("echo x > f; cat f").out, "x\n");
  const Box other(GetParam(), {"--workspace", "o", "--disk", "20m"});
  EXPECT_EQ(carrel({"snapshot", "w"}).status, 0);
  EXPECT_EQ(carrel({"workspace", "fsck"}).status, 0) << "both kinds in one home";
  const Run required = bash("true", {"--workspace", "p", "--disk", "100000g", "--require", "disk"});
  EXPECT_TRUE(says_one_line(required, "'disk' is required")) << required.err;
}

TEST_P(Quotas, WithoutMke2fsOrLoopDevicesItIsWatchedInstead) {
  for (const std::string file : {"/usr/sbin/mke2fs", "/dev/loop-control"}) {
    const std::string name = fs::path(file).filename();
    const std::vector<std::string> words = {"run", "--workspace", name, "--disk", "20m"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), words.begin(), words.end());
      return more;
    };
    const Run refused = without(file, with({"--require", "disk", "--", "true"}));
    EXPECT_TRUE(says_one_line(refused, "'disk' is required")) << file << ": " << refused.err;
    EXPECT_EQ(without(file, with({"--", "echo", "works"})).out, "works\n") << file;
    EXPECT_FALSE(fs::exists(place().home(GetParam()) + "/workspaces/" + name + "/disk")) << file;
  }
}

TEST_P(Quotas, TheDoctorTriesItAndSaysWhatToInstall) {
  const auto disk = [](const Run& run) {
    const json answer = json::parse(run.out, nullptr, false);
    for (const json& one : answer.value("checks", json::array())) {
      if (one["name"] == "disk") {
        return one;
      }
    }
    return json{{"status", run.out + run.err}};
  };
  EXPECT_EQ(disk(carrel({"doctor", "--json"}))["status"], "ok");
  const json no_program = disk(without("/usr/sbin/mke2fs", {"doctor", "--json"}));
  EXPECT_EQ(no_program["status"], "missing") << no_program;
  EXPECT_EQ(no_program["fix"], "install the package e2fsprogs");
  const json no_device = disk(without("/dev/loop-control", {"doctor", "--json"}));
  EXPECT_EQ(no_device["status"], "missing") << no_device;
  EXPECT_NE(no_device.value("fix", "").find("modprobe loop"), std::string::npos) << no_device;
  for (const fs::directory_entry& entry : fs::directory_iterator(place().home(GetParam()))) {
    EXPECT_FALSE(entry.path().filename().string().starts_with("doctor.")) << entry.path();
  }
}

TEST_P(Quotas, OneThatCannotBeMountedAnyMoreSaysWhichAndWhy) {
  ASSERT_EQ(bash("echo x > f", {"--workspace", "w", "--disk", "20m"}).status, 0);
  const Run failed = without("/dev/loop-control", {"run", "--workspace", "w", "--", "true"});
  EXPECT_EQ(failed.status, 125);
  EXPECT_TRUE(says_one_line(failed, "the workspace 'w'")) << failed.err;
  EXPECT_EQ(bash("cat f", {"--workspace", "w", "--disk", "20m"}).out, "x\n");
}

TEST_P(Quotas, TheListShowsTheLimit) {
  ASSERT_EQ(bash("head -c 1M /dev/zero > f", {"--workspace", "w", "--disk", "20m"}).status, 0);
  const json list = json::parse(carrel({"workspace", "ls", "--json"}).out, nullptr, false);
  EXPECT_EQ(list["workspaces"][0]["limit_bytes"], 20 << 20) << list;
  EXPECT_EQ(list["workspaces"][0]["size_bytes"], 1 << 20) << list;
  EXPECT_GE(list["workspaces"][0]["disk_bytes"], 1 << 20) << list;
  EXPECT_LE(list["workspaces"][0]["disk_bytes"], 4 << 20) << list;
  EXPECT_NE(carrel({"workspace", "ls"}).out.find("LIMIT"), std::string::npos);
}

}  // namespace
}  // namespace carrel::test
