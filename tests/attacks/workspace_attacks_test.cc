// Attacks by what a workspace, a snapshot or an image holds, and on what is shared between them.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "attacks/attack_test.h"
#include "support/workspace_files.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class WorkspaceAttack : public AttackTest {
 protected:
  void TearDown() override {
    if (!IsSkipped()) {
      EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
      EXPECT_EQ(carrel({"workspace", "prune", "--older-than", "1ms"}).status, 0);
    }
    AttackTest::TearDown();
  }
  std::string says(const std::vector<std::string>& words) {
    const Run run = attack(words);
    EXPECT_EQ(run.status, 0) << words[0] << ": " << run.err;
    return run.out.substr(0, run.out.find('\n'));
  }
  [[nodiscard]] std::string home() const { return place().home(GetParam()); }
  // A directory on the host, of this user's.
  std::string folder(const std::string& name) const {
    const std::string path = place().work(GetParam()) + "/" + name;
    fs::create_directories(path);
    place().give(path, GetParam());
    return path;
  }
  // A directory with the least that an image needs; `fill` puts the rest into it.
  std::string image(const std::string& name) const {
    const std::string root = folder(name);
    fs::create_directories(root + "/bin");
    fs::copy_file("/bin/busybox", root + "/bin/busybox");
    for (const char* tool : {"sh", "cat", "ls", "echo", "stat", "touch"}) {
      fs::create_symlink("busybox", root + "/bin/" + tool);
    }
    return root;
  }
};
CARREL_AS_BOTH(WorkspaceAttack);

TEST_P(WorkspaceAttack, A14_AttributesOfOverlaysRedirectNothing) {
  const std::string id = create({"--workspace", "w"});
  EXPECT_EQ(sh(id, "mkdir d e; echo mine > d/mine; echo old > e/old").status, 0);
  says({"snapshot", "w"});
  const Run set = sh(id, R"(python3 - <<'END'
import os
for name, value in (('redirect', b'/../../../etc'), ('opaque', b'y'), ('metacopy', b''),
                    ('origin', b'x')):
    for space in ('user', 'trusted'):
        for where in ('d', 'e', 'd/mine'):
            try:
                os.setxattr(where, space + '.overlay.' + name, value)
            except OSError:
                pass
open('e/new', 'w').write('new')
END)");
  EXPECT_EQ(set.status, 0) << set.err;
  const std::string fork = says({"fork", "w", "--workspace", "f"});
  EXPECT_EQ(sh(fork, "find d e -type f | sort; cat d/mine e/old").out,
            "d/mine\ne/new\ne/old\nmine\nold\n");
  // The same in an upper, of which the next fork is made.
  EXPECT_EQ(sh(fork,
               "mkdir n; echo x > n/x; python3 -c \"import os; os.setxattr('n', "
               "'user.overlay.redirect', b'/../../../etc')\" 2> /dev/null; find n -type f")
                .out,
            "n/x\n");
  const std::string second = says({"fork", "f", "--workspace", "g"});
  EXPECT_EQ(sh(second, "find d n -type f").out, "d/mine\nn/x\n");
}

TEST_P(WorkspaceAttack, A23_NoHookIsPlantedByApplyAndNoPlaceholderIsLeft) {
  const std::string source = folder("repository");
  fs::create_directories(source + "/.git/hooks");
  write_text(source + "/.git/config", "[core]\n");
  write_text(source + "/notes", "one\n");
  for (const auto& entry : fs::recursive_directory_iterator(source)) {
    place().give(entry.path(), GetParam());
  }
  const std::string id = create({"--workspace", "w", "--workspace-from", source});
  for (const char* plant :
       {"mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit",
        "mv .git g; mkdir -p g/hooks; echo evil > g/hooks/post-merge; mv g .git",
        "rm -rf .git; mkdir hidden; echo evil > hidden/config; ln -s hidden .git"}) {
    EXPECT_EQ(sh(id, plant).status, 0) << plant;
    const Run applied = attack({"apply", id, "--yes"});
    EXPECT_EQ(read_text(source + "/.git/config").value_or(""), "[core]\n") << plant << applied.err;
    EXPECT_TRUE(fs::is_directory(fs::symlink_status(source + "/.git"))) << plant;
    EXPECT_TRUE(fs::is_empty(source + "/.git/hooks")) << plant;
  }
}

// Only tar is unpacked: a zip is a file like any other.
TEST_P(WorkspaceAttack, B07_AZipIsData) {
  const std::string id = create();
  const std::string zip = file("evil.zip", "");
  const std::string make =
      "python3 -c \"import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as z:\n"
      " z.writestr('../../x', 'evil'); z.writestr('/abs', 'evil'); z.writestr('in', 'evil')\" " +
      zip;
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string bytes = read_text(zip).value_or("");
  EXPECT_EQ(attack({"cp", zip, id + ":evil.zip"}).status, 0);
  EXPECT_EQ(attack({"cp", id + ":evil.zip", zip + ".back"}).status, 0);
  EXPECT_EQ(read_text(zip + ".back"), bytes);
  EXPECT_EQ(attack({"cp", "-", id + ":in/"}, {.input = bytes}).status, 125);
  EXPECT_EQ(sh(id, "find /workspace /abs /x 2> /dev/null").out,
            "/workspace\n/workspace/evil.zip\n");
  const Run imported = attack({"image", "import", zip});
  EXPECT_TRUE(says_one_line(imported, "evil.zip")) << imported.err;
  EXPECT_EQ(imported.status, 125);
}

TEST_P(WorkspaceAttack, B17_ASnapshotStoresLinksAsLinksAndNothingThatLendsRights) {
  const std::string id = create({"--workspace", "w"});
  const Run made =
      sh(id,
         "ln -s / root; ln -s /root r; ln -s /proc/self/root p; mkfifo pipe; cp /bin/true "
         "suid; chmod 6755 suid 2> /dev/null || chmod 755 suid; mknod null c 1 3 2> "
         "/dev/null; mknod gone c 0 0 2> /dev/null; echo x > .wh.file; mkdir d; "
         "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"");
  EXPECT_EQ(made.status, 0) << made.err;
  says({"snapshot", "w", "--name", "s"});
  std::size_t links = 0;
  for (const auto& entry : fs::recursive_directory_iterator(home() + "/layers")) {
    struct stat info{};
    ASSERT_EQ(::lstat(entry.path().c_str(), &info), 0);
    links += S_ISLNK(info.st_mode) ? 1U : 0U;
    EXPECT_EQ(info.st_mode & 06000, 0U) << entry.path();
    EXPECT_FALSE(S_ISBLK(info.st_mode) || S_ISSOCK(info.st_mode)) << entry.path();
    EXPECT_FALSE(S_ISCHR(info.st_mode) && info.st_rdev != 0) << entry.path();
  }
  EXPECT_EQ(links, 3U);
  EXPECT_EQ(sh(id, "rm -rf root r p; echo y > d/y").status, 0);
  says({"restore", "w", "s"});
  EXPECT_EQ(sh(id, "readlink root r p; ls d | wc -l; cat .wh.file").out,
            "/\n/root\n/proc/self/root\n0\nx\n");
  EXPECT_EQ(attack({"workspace", "fsck"}).status, 0);
}

TEST_P(WorkspaceAttack, B18_RemovingFollowsNoLinkThatAppears) {
  const std::string precious = folder("precious");
  write_text(precious + "/keep", "kept");
  int swaps = 0;
  for (int round = 0; round < 10; ++round) {
    // So large that its files are in a plain directory, as root too.
    const Run made = bash("mkdir -p a/b/c; touch a/b/c/{1..300} a/b/{1..300}",
                          {"--workspace", "w", "--disk", "100000g"});
    EXPECT_EQ(made.status, 0) << made.err;
    std::atomic<bool> done{false};
    std::thread swapper([&] {
      const std::string top = home() + "/workspaces";
      while (!done) {
        std::error_code ignored;
        for (const auto& workspace : fs::directory_iterator(top, ignored)) {
          const fs::path deep = workspace.path() / "tree/a/b";
          std::error_code failed;
          fs::rename(deep, workspace.path() / "tree/a/z", failed);
          swaps += failed ? 0 : 1;
          fs::create_directory_symlink(precious, deep, ignored);
        }
      }
    });
    const Run removed = carrel({"workspace", "rm", "w"});
    done = true;
    swapper.join();
    EXPECT_EQ(read_text(precious + "/keep").value_or(""), "kept") << removed.err;
    (void)carrel({"workspace", "prune", "--older-than", "1ms"});
  }
  EXPECT_GT(swaps, 0);
}

TEST_P(WorkspaceAttack, C05_C06_AnImageHasNoSayInProcAndDev) {
  const std::string root = image("image");
  fs::create_directories(root + "/proc/self/attr");
  write_text(root + "/proc/self/attr/exec", "fake");
  write_text(root + "/proc/version", "fake");
  fs::create_directories(root + "/dev/pts");
  fs::create_symlink("/proc/sys/kernel/core_pattern", root + "/dev/null");
  fs::create_symlink("/proc/sys/kernel/core_pattern", root + "/dev/console");
  fs::create_symlink("/proc/sys/kernel/core_pattern", root + "/dev/pts/0");
  fs::create_symlink("/proc", root + "/sys");
  for (const std::string& name : {"dir:" + root, std::string("imported")}) {
    if (name == "imported") {
      EXPECT_EQ(attack({"image", "import", root, "--name", name}).status, 0);
    }
    const Run run = attack({"run", "--image", name, "--", "sh", "-c",
                            "stat -c '%F %t:%T' /dev/null; echo '|evil' > /dev/null; cat "
                            "/proc/self/attr/exec /proc/version | cat; stat -c %F /sys"});
    EXPECT_EQ(run.out.substr(0, run.out.find('\n')), "character special file 1:3") << run.err;
    EXPECT_EQ(run.out.find("fake"), std::string::npos) << run.out;
    EXPECT_EQ(run.out.find("symbolic link"), std::string::npos) << run.out;
  }
  const std::string data = folder("data");
  for (const char* target : {"/proc", "/proc/self", "/sys/fs/cgroup", "/dev", "/dev/pts"}) {
    EXPECT_EQ(attack({"run", "--mount", data + ":" + target, "--", "true"}).status, 125) << target;
  }
}

TEST_P(WorkspaceAttack, C10_NamesAndSizesAreNeverOptions) {
  const std::string root = image("im,age:lower=x\\ y,upperdir=z");
  write_text(root + "/bin/marker", "here");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--writable-root"}}) {
    std::vector<std::string> words = {"run", "--image", "dir:" + root};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--", "cat", "/bin/marker"});
    const Run run = attack(words);
    EXPECT_EQ(run.out, "here") << run.err;
  }
  EXPECT_TRUE(says_one_line(attack({"run", "--image", "dir:" + root + "\nx", "--", "true"}),
                            "control characters"));
  for (const char* size : {"1g,mode=777", "1g,uid=0", "1m\nmode=777", "1m size=9g"}) {
    for (const char* option : {"--tmp", "--disk"}) {
      EXPECT_TRUE(says_one_line(attack({"run", option, size, "--", "true"}), "")) << size;
    }
  }
}

// Who may use whose snapshots is the file system's to say: each user has his own, and a fork tells
// what it began with.
TEST_P(WorkspaceAttack, H04_SnapshotsAreTheirUsersOwnAndForksTellWhereTheyComeFrom) {
  const std::string id = create({"--workspace", "w"});
  EXPECT_EQ(sh(id, "echo x > f").status, 0);
  const std::string snapshot = says({"snapshot", "w", "--name", "template"});
  says({"fork", "w", "--workspace", "f"});
  const json list = json::parse(attack({"workspace", "ls", "--json"}).out, nullptr, false);
  std::string origin;
  for (const json& one : list["workspaces"]) {
    origin = one["name"] == "f" ? one["fork_of"].get<std::string>() : origin;
  }
  EXPECT_EQ(origin, snapshot);
  const As other = as_root() ? As::kUser : As::kRoot;
  for (const std::string& named : {std::string("w"), snapshot}) {
    EXPECT_EQ(test::carrel(other, {"fork", named}).status, 125) << named;
  }
  struct stat info{};
  for (const char* part : {"/layers", "/workspaces/w", "/state.db"}) {
    ASSERT_EQ(::stat((home() + part).c_str(), &info), 0) << part;
    EXPECT_EQ(info.st_mode & 066, 0U) << part << " is not for others to list or write";
  }
}

TEST_P(WorkspaceAttack, H05_AForkHasAnIdentityOfItsOwn) {
  const std::string id = create({"--workspace", "w"});
  EXPECT_EQ(sh(id, "echo x > f").status, 0);
  const std::string fork = says({"fork", "w", "--workspace", "f"});
  const std::string again = says({"fork", "w", "--workspace", "g"});
  for (const char* text : {"cat /etc/machine-id", "cat /proc/sys/kernel/random/boot_id",
                           "python3 -c 'import random, uuid; print(random.random(), uuid.uuid4())'",
                           "head -c 16 /dev/urandom | sha256sum"}) {
    const std::string one = sh(id, text).out;
    const std::string two = sh(fork, text).out;
    EXPECT_NE(one, "") << text;
    EXPECT_NE(one, two) << text;
    EXPECT_NE(two, sh(again, text).out) << text;
  }
}

TEST_P(WorkspaceAttack, H07_ASharedCacheIsNotPoisoned) {
  const std::string cache = folder("cache");
  write_text(cache + "/wheel", "good");
  const std::string mount = cache + ":/cache";
  const Run one = script(
      "echo evil > /cache/wheel; rm /cache/wheel; echo x > /cache/new; ln /cache/wheel "
      "/workspace/w; cat /cache/wheel",
      {"--mount", mount});
  EXPECT_EQ(one.out, "good") << one.err;
  EXPECT_EQ(script("find /cache -type f; cat /cache/wheel", {"--mount", mount}).out,
            "/cache/wheel\ngood");
  // A workspace is one sandbox's unless both say otherwise.
  create({"--workspace", "w"});
  EXPECT_EQ(attack({"run", "--workspace", "w", "--share-workspace", "--", "true"}).status, 125);
}

TEST_P(WorkspaceAttack, G05_NoWritablePlaceFillsTheHostsDisk) {
  // Of this test's own places: what neighbours write is theirs.
  const auto on_disk = [&] {
    std::uint64_t blocks = 0;
    for (const std::string& top : {home(), place().temporary(GetParam())}) {
      std::error_code ignored;
      for (const auto& entry : fs::recursive_directory_iterator(top, ignored)) {
        struct stat info{};
        if (::lstat(entry.path().c_str(), &info) == 0) {
          blocks += static_cast<std::uint64_t>(info.st_blocks);
        }
      }
    }
    return blocks * 512;
  };
  const Run run = script(
      "for d in /workspace /tmp /home/* /dev/shm /run /var/tmp /var; do [ -w $d ] || continue; "
      "dd if=/dev/zero of=$d/fill bs=1M count=400 2> $d/said || true; "
      "fallocate -l 4G $d/set-aside 2> /dev/null && echo $d was given 4G; "
      "truncate -s 4G $d/sparse 2> /dev/null && dd if=/dev/zero of=$d/sparse bs=1M count=400 "
      "conv=notrunc 2> /dev/null && echo $d took 400M more; "
      "s=$(stat -c %s $d/fill 2> /dev/null || echo 0); [ $s -lt 400000000 ] || echo $d took $s; "
      "rm -f $d/fill $d/sparse $d/set-aside; done; echo done",
      {"--memory", "256m", "--disk", "64m", "--tmp", "32m"});
  EXPECT_EQ(run.out, "done\n") << run.err;
  EXPECT_LT(on_disk(), 100U << 20);
}

TEST_P(WorkspaceAttack, R58_NothingOfAnEphemeralSandboxIsLeft) {
  const auto everything = [&] {
    std::vector<std::string> paths;
    for (const std::string& top : {home() + "/workspaces", home() + "/layers", home() + "/run",
                                   place().temporary(GetParam())}) {
      std::error_code ignored;
      for (const auto& entry : fs::recursive_directory_iterator(top, ignored)) {
        // The keeper, its nursery and the network have theirs for as long as they live.
        const std::string path = entry.path().string();
        if (path.find("/run/keeper") == std::string::npos &&
            path.find("/run/nursery") == std::string::npos &&
            path.find("/run/egress") == std::string::npos) {
          paths.push_back(path);
        }
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  };
  EXPECT_EQ(script("true").status, 0);
  const std::vector<std::string> before = everything();
  EXPECT_EQ(script("echo x > f; mkdir -p d/e; echo y > d/e/f; echo z > /tmp/t").status, 0);
  EXPECT_EQ(everything(), before);
  const std::string id = create();
  EXPECT_EQ(sh(id, "echo x > f; echo z > /tmp/t").status, 0);
  EXPECT_EQ(attack({"rm", "--force", id}).status, 0);
  EXPECT_EQ(everything(), before);
}

}  // namespace
}  // namespace carrel::test
