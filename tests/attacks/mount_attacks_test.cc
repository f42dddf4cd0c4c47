// Attacks through and on host folders that a sandbox was given.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "attacks/attack_test.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

class MountAttack : public AttackTest {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const {
    return place().work(GetParam()) + "/" + name;
  }
  [[nodiscard]] std::string folder(const std::string& name) const {
    EXPECT_EQ(::mkdir(path(name).c_str(), 0755), 0) << name;
    place().give(path(name), GetParam());
    return path(name);
  }
  [[nodiscard]] struct stat look(const std::string& name) const {
    struct stat info{};
    EXPECT_EQ(::lstat(name.c_str(), &info), 0) << name;
    return info;
  }
};
CARREL_AS_BOTH(MountAttack);

TEST_P(MountAttack, A06_AReadOnlyFolderCannotBeRemounted) {
  const std::string data = folder("data");
  const std::string out = folder("out");
  const std::string attempts =
      "mount -o remount,rw /data; mount -o remount,bind,rw /data; mount --bind /data /tmp; "
      "umount -l /data; unshare -Urm mount -o remount,bind,rw /data; "
      "python3 -c 'import ctypes; c = ctypes.CDLL(None); "
      "a = (ctypes.c_ulong * 4)(0, 1, 0, 0); print(c.syscall(442, -100, b\"/data\", 0, a, 32)); "
      "print(c.syscall(428, -100, b\"/data\", 1)); print(c.mount(0, b\"/data\", 0, 4128, 0))'; "
      "touch /data/x; touch /out/x && echo control";
  const Run run = script(attempts, {"--mount", data + ":/data", "--mount", out + ":/out:rw"});
  EXPECT_EQ(run.out, "-1\n-1\n-1\ncontrol\n") << run.err;
  EXPECT_NE(run.err.find("'/data/x': Read-only file system"), std::string::npos) << run.err;
  EXPECT_NE(::access((data + "/x").c_str(), F_OK), 0);
  EXPECT_EQ(::access((out + "/x").c_str(), F_OK), 0);
}

// The writable folder is on the same file system, so that only the mounts are between them.
TEST_P(MountAttack, A17_AFileOfAReadOnlyFolderCannotBeHardLinkedToAWritablePlace) {
  const std::string data = folder("data");
  const std::string out = folder("out");
  file("data/f", "original\n");
  place().give(data + "/f", GetParam());
  ASSERT_EQ(::link((data + "/f").c_str(), (out + "/control").c_str()), 0);
  ASSERT_EQ(::unlink((out + "/control").c_str()), 0);
  const Run run = script(
      "ln /data/f /out/f; ln /data/f /workspace/f; "
      "cp --reflink=never /data/f /out/copy && ln /out/copy /out/second && echo control",
      {"--mount", data + ":/data", "--mount", out + ":/out:rw"});
  EXPECT_EQ(run.out, "control\n") << run.err;
  EXPECT_NE(run.err.find("Invalid cross-device link"), std::string::npos) << run.err;
  EXPECT_EQ(look(data + "/f").st_nlink, 1U);
  EXPECT_NE(::access((out + "/f").c_str(), F_OK), 0);
}

// What the host has under a hidden name cannot be had by moving what is around it, and hiding
// leaves nothing behind.
TEST_P(MountAttack, A23_HiddenFilesStayHiddenWhenTheirFolderIsMoved) {
  const std::string data = folder("data");
  const std::string inner = folder("data/inner");
  file("data/inner/.env", canaries().secret());
  place().give(inner + "/.env", GetParam());
  const Run run = script(
      "cd /data; mv inner moved; cat moved/.env; ln -s moved/.env link; cat link; "
      "cp -r moved copy; cat copy/.env; rm -rf moved; mv moved/.env x; mv link moved/.env; "
      "echo mine > .netrc && echo control",
      {"--mount", data + ":/data:rw"});
  EXPECT_EQ(run.out, "control\n") << run.err;
  EXPECT_EQ(read_text(data + "/moved/.env"), canaries().secret());
  EXPECT_EQ(read_text(data + "/copy/.env"), "") << "what is inside is empty";
  EXPECT_NE(::access((data + "/.ssh").c_str(), F_OK), 0) << "a placeholder was left";
}

TEST_P(MountAttack, C01_WhatIsForbiddenIsNeverMounted) {
  const std::string home = place().home(GetParam());
  const std::string program = place().program();
  const std::string good = folder("good");
  EXPECT_EQ(script("true", {"--mount", good + ":/data"}).status, 0) << "control";
  for (const std::string& source :
       {std::string("/"), std::string("/etc"), std::string("/root"), std::string("/proc"),
        std::string("/sys"), std::string("/dev"), std::string("/run"), std::string("/var"),
        std::string("/var/run/docker.sock"), std::string("/etc/shadow"), std::string("/boot"), home,
        home + "/run", program.substr(0, program.rfind('/'))}) {
    for (const char* mode : {":ro", ":rw"}) {
      const Run run = script("echo ran", {"--mount", source + ":/data" + mode});
      EXPECT_EQ(run.status, 125) << source << mode;
      EXPECT_TRUE(says_one_line(run, "mount '" + source + "'")) << source << mode;
    }
  }
}

TEST_P(MountAttack, C02_OtherSpellingsReachNothingOutsideOfWhatIsAllowed) {
  const std::string data = folder("data");
  (void)folder("data-evil");
  (void)folder("other");
  (void)folder("conf");
  ASSERT_EQ(::symlink("/etc", (data + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("../other", (data + "/other").c_str()), 0);
  file("conf/c.toml", "allowed_read_paths = [\"" + data + "\"]\n");
  const auto status = [&](const std::string& source) {
    return script("echo ran", {"--config", path("conf/c.toml"), "--mount", source + ":/x"}).status;
  };
  EXPECT_EQ(status(data), 0) << "control";
  for (const std::string& source :
       {data + "/../other", data + "/../../../../../../etc", data + "-evil",
        data + "/./..//data-evil", path("DATA"), data + "/link", data + "/other",
        "/proc/self/root" + data, std::string("/proc/self/root/etc"), std::string("/proc/self/cwd"),
        std::string("data/../other"), std::string("~"), std::string("~/x"), data + "/link/.",
        data + "%2f..%2fother", data + "/%2e%2e/other", std::string("/etc/."),
        std::string("./other"), std::string("")}) {
    EXPECT_EQ(status(source), 125) << source;
  }
}

// Swaps two names as fast as it can.
class Swapper {
 public:
  Swapper(std::string one, std::string other)
      : one_(std::move(one)), other_(std::move(other)), thread_([this] { swap(); }) {}
  ~Swapper() {
    over_ = true;
    thread_.join();
  }
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;

 private:
  void swap() const {
    while (!over_) {
      ::syscall(SYS_renameat2, AT_FDCWD, one_.c_str(), AT_FDCWD, other_.c_str(), RENAME_EXCHANGE);
    }
  }

  std::string one_;
  std::string other_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Somebody who looks at a path and then uses it, as long as that takes to go wrong.
bool somebody_careless_is_fooled(const std::string& path, const std::string& secret) {
  return eventually(seconds(20), [&] {
    for (int i = 0; i < 20'000; ++i) {
      struct stat info{};
      if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
          ::access((path + "/.env").c_str(), F_OK) != 0 &&
          read_text(path + "/file").value_or("") == secret) {
        return true;
      }
    }
    return false;
  });
}

// R126. CARREL_RACE_ROUNDS is how often.
TEST_P(MountAttack, C03_AFolderThatIsSwappedForALinkIsNeverMounted) {
  const std::string data = folder("x");
  file("x/file", "good\n");
  const std::string secret = folder("secret");
  file("secret/file", "CANARY\n");
  place().give(secret, GetParam());
  ASSERT_EQ(::symlink(secret.c_str(), path("link").c_str()), 0);
  const Swapper swapper(data, path("link"));
  EXPECT_TRUE(somebody_careless_is_fooled(data, "CANARY\n")) << "nothing is swapped";
  unsigned long mounted = 0;
  unsigned long refused = 0;
  const unsigned long rounds = number_from("CARREL_RACE_ROUNDS", 200);
  for (unsigned long i = 0; i < rounds && !HasFailure(); ++i) {
    const std::string mode = i % 2 == 0 ? ":ro" : ":rw";
    const Run run = script("cat /data/file; touch /data/touched 2>/dev/null; true",
                           {"--mount", data + ":/data" + mode});
    EXPECT_TRUE(run.status == 0 ? run.out == "good\n" : run.status == 125 && run.out.empty())
        << run.status << run.out << run.err;
    (run.status == 0 ? mounted : refused) += 1;
  }
  EXPECT_GT(mounted, 0U);
  EXPECT_GT(refused, 0U);
  EXPECT_NE(::access((secret + "/touched").c_str(), F_OK), 0) << "it was written to";
}

// What was looked through for things to hide is what is mounted.
TEST_P(MountAttack, C03_AFolderThatIsSwappedForAnotherIsMountedWithItsOwnCovers) {
  const std::string data = folder("x");
  const std::string other = folder("y");
  file("y/.env", "CANARY\n");
  file("y/file", "CANARY\n");
  const Swapper swapper(data, other);
  EXPECT_TRUE(somebody_careless_is_fooled(data, "CANARY\n")) << "nothing is swapped";
  unsigned long mounted = 0;
  const unsigned long rounds = number_from("CARREL_RACE_ROUNDS", 200);
  for (unsigned long i = 0; i < rounds && !HasFailure(); ++i) {
    const Run run = script("cat /data/.env", {"--mount", data + ":/data"});
    EXPECT_EQ(run.out, "") << run.err;
    mounted += run.status != 125 ? 1 : 0;
  }
  EXPECT_GT(mounted, 0U);
}

TEST_P(MountAttack, C07_NothingPropagatesInEitherDirection) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can mount";
  }
  const std::string data = folder("data");
  ASSERT_EQ(::mount("none", data.c_str(), "tmpfs", 0, "mode=0755"), 0);
  ASSERT_EQ(::mount(nullptr, data.c_str(), nullptr, MS_SHARED, nullptr), 0);
  place().give(data, GetParam());
  (void)folder("data/later");
  (void)folder("twin");
  ASSERT_EQ(::mount(data.c_str(), path("twin").c_str(), nullptr, MS_BIND, nullptr), 0);
  const std::set<std::string> before = mounts_here();
  const std::string id = create({"--mount", data + ":/data:rw"});
  const Run inside = sh(id, "grep ' /data ' /proc/self/mountinfo; mount -t tmpfs none /data/later");
  EXPECT_EQ(inside.out.find("shared:"), std::string::npos) << inside.out;
  EXPECT_EQ(inside.out.find("master:"), std::string::npos) << inside.out;
  EXPECT_EQ(harm_to_mounts(before, mounts_here()), "") << "the host's mounts were changed";
  ASSERT_EQ(::mount("none", (data + "/later").c_str(), "tmpfs", 0, "mode=0777"), 0);
  file("data/later/file", "later\n");
  EXPECT_EQ(read_text(path("twin") + "/later/file"), "later\n") << "control: it is shared";
  EXPECT_EQ(sh(id, "ls /data/later").out, "");
  EXPECT_EQ(carrel({"rm", "--force", id}).status, 0);
  ::umount2((data + "/later").c_str(), MNT_DETACH);
  ::umount2(path("twin").c_str(), MNT_DETACH);
  ::umount2(data.c_str(), MNT_DETACH);
}

TEST_P(MountAttack, C09_TargetsCoverNothingOfTheSandbox) {
  const std::string data = folder("data");
  for (const std::string target : {"/", "/proc", "/proc/kallsyms", "/dev", "/dev/null", "/sys",
                                   "/etc", "/etc/passwd", "/usr", "/run", "/workspace/code"}) {
    const Run run = script("echo ran", {"--mount", data + ":" + target});
    EXPECT_EQ(run.status, 125) << target;
  }
  const Run over = script("echo ran", {"--mount", data + ":/a/b", "--mount", data + ":/a"});
  EXPECT_EQ(over.status, 125);
  const std::string masks =
      "cut -d' ' -f5,6 /proc/self/mountinfo | grep -v '^/data' | sort; touch /x /etc/x 2>&1";
  const Run with = script(masks, {"--mount", data + ":/data:rw"});
  EXPECT_EQ(with.out, script(masks).out) << "something that protects is missing";
  EXPECT_NE(with.out.find("/proc/kallsyms ro,"), std::string::npos) << with.out;
}

TEST_P(MountAttack, C11_WhatASandboxMakesIsNeverRootsUnlessTheFolderIs) {
  const std::string data = folder("data");
  if (as_root()) {
    place().give(data, As::kUser);
  }
  const std::string open = path("open");
  ASSERT_EQ(::mkdir(open.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(open.c_str(), 01777), 0);  // of whoever runs the test, root as a rule
  const Run run = script("id -u; touch /data/f /open/f && mkdir /data/d && mkfifo /data/p",
                         {"--mount", data + ":/data:rw", "--mount", open + ":/open:rw"});
  EXPECT_EQ(run.status, 0) << run.err;
  for (const char* name : {"f", "d", "p"}) {
    EXPECT_EQ(look(data + "/" + name).st_uid, Place::user_id()) << name;
  }
  EXPECT_NE(look(open + "/f").st_uid, 0U);
  EXPECT_LT(look(open + "/f").st_uid, 0x7000'0000U) << "an id that another sandbox will have";
}

// Where files stay on the host, nobody's rights can be left in them.
TEST_P(MountAttack, C11_NoSetIdFileIsLeftOnTheHost) {
  const std::string data = folder("data");
  const std::string program =
      "import os, ctypes\nc = ctypes.CDLL(None)\n"
      "def t(name, f):\n  try:\n    f()\n  except OSError as e: print(name, e.strerror)\n"
      "t('control', lambda: os.close(os.open('/data/a', os.O_CREAT | os.O_WRONLY, 0o755)))\n"
      "t('chmod', lambda: os.chmod('/data/a', 0o4755))\n"
      "fd = os.open('/data/a', os.O_RDONLY)\n"
      "t('fchmod', lambda: os.fchmod(fd, 0o2755))\n"
      "t('open', lambda: os.close(os.open('/data/b', os.O_CREAT | os.O_WRONLY, 0o6755)))\n"
      "t('mknod', lambda: os.mknod('/data/c', 0o104755))\n"
      "t('tmpfile', lambda: os.close(os.open('/data', os.O_TMPFILE | os.O_WRONLY, 0o4755)))\n"
      "how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o4755, 0)\n"
      "print('openat2', c.syscall(437, -100, b'/data/d', how, 24))\n"
      "print('fchmodat2', c.syscall(452, -100, b'/data/a', 0o4755, 0))\n"
      "print('creat', c.syscall(85, b'/data/e', 0o4755))\n";
  const Run run = python(program, {"--mount", data + ":/data:rw"});
  std::string expected;
  for (const char* name : {"chmod", "fchmod", "open", "mknod", "tmpfile"}) {
    expected += std::string(name) + " Operation not permitted\n";
  }
  EXPECT_EQ(run.out, expected + "openat2 -1\nfchmodat2 -1\ncreat -1\n") << run.err;
  EXPECT_EQ(look(data + "/a").st_mode & 07777, 0755U);
  // What ends with the sandbox is its own affair.
  EXPECT_EQ(script("touch f && chmod 4755 f && find f -printf '%m\\n'").out, "4755\n");
}

// Root's home is a home like any: projects in it may be mounted, and nothing beside them. /root is
// a file system of this test's own, which everybody may read.
class RootsHomeAttack : public MountAttack {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can mount";
    }
    MountAttack::SetUp();
  }
  void open_world() override {
    ASSERT_EQ(::mount("none", "/root", "tmpfs", 0, "mode=0755"), 0);
    std::filesystem::create_directory(kProject);
  }
  void close_world() override { ::umount2("/root", MNT_DETACH); }

  // A canary at that place, with the folders that it needs.
  void plant(const std::string& name) const {
    std::filesystem::create_directories(name.substr(0, name.rfind('/')));
    write_text(name, canaries().secret());
  }
  // Everything readable in the sandbox's /data; attack() looks for the secret in it.
  Run read_all(const std::string& source) {
    return script("cat /data 2>/dev/null; find /data -type f -exec cat {} +",
                  {"--mount", source + ":/data"});
  }
  void expect_refused(const std::string& source) {
    for (const char* mode : {"", ":rw"}) {
      const Run run = script("echo ran", {"--mount", source + ":/data" + mode});
      EXPECT_EQ(run.status, 125) << source << mode << run.out;
      EXPECT_TRUE(says_one_line(run, "mount '" + source + "'")) << source << mode;
    }
    const Run copy = attack({"run", "--workspace-from", source, "--", "echo", "ran"});
    EXPECT_EQ(copy.status, 125) << source << copy.out;
  }

  static constexpr const char* kProject = "/root/project";
  // One of each kind that programs keep for root.
  static constexpr std::array kNeighbours = {"/root/.ssh/id_rsa",
                                             "/root/.ssh/config",
                                             "/root/.aws/credentials",
                                             "/root/.aws/sso/cache/token.json",
                                             "/root/.config/gh/hosts.yml",
                                             "/root/.config/gcloud/access_tokens.db",
                                             "/root/.gnupg/secring.gpg",
                                             "/root/.kube/config",
                                             "/root/.docker/config.json",
                                             "/root/.mozilla/firefox/logins.json",
                                             "/root/.netrc",
                                             "/root/.npmrc",
                                             "/root/.pypirc",
                                             "/root/.git-credentials",
                                             "/root/.bash_history",
                                             "/root/.python_history",
                                             "/root/.psql_history",
                                             "/root/.lesshst",
                                             "/root/.viminfo",
                                             "/root/.bashrc",
                                             "/root/.profile",
                                             "/root/.pip/pip.conf",
                                             "/root/.m2/settings.xml",
                                             "/root/.gradle/gradle.properties",
                                             "/root/.wgetrc",
                                             "/root/.s3cfg",
                                             "/root/.claude/history.jsonl",
                                             "/root/.codex/auth.json",
                                             "/root/.cargo/credentials",
                                             "/root/.terraform.d/credentials.tfrc.json",
                                             "/root/.composer/auth.json",
                                             "/root/.local/share/keyrings/login.keyring",
                                             "/root/.Xauthority",
                                             "/root/.local/share/carrel/secrets/x"};
};
CARREL_AS_BOTH(RootsHomeAttack);

TEST_P(RootsHomeAttack, C01_WhatIsBesideAProjectIsNeverMounted) {
  write_text(std::string(kProject) + "/main", "control\n");
  EXPECT_EQ(read_all(kProject).out, "control\n") << "a project is mounted";
  EXPECT_EQ(attack({"run", "--workspace-from", kProject, "--", "cat", "main"}).out, "control\n");
  for (const char* neighbour : kNeighbours) {
    plant(neighbour);
  }
  for (std::string name : kNeighbours) {
    // The file, and each folder that it is in.
    for (; name != "/root"; name = name.substr(0, name.rfind('/'))) {
      if (name != "/root/.cargo") {
        expect_refused(name);
      }
    }
  }
  for (const char* parent : {"/root", "/root/", "/root/.", "/root/project/..", "//root", "/"}) {
    expect_refused(parent);
  }
  // With lists that would allow all of it.
  file("lists.toml",
       "allowed_read_paths = [\"/\", \"/root\"]\nallowed_write_paths = [\"/root\"]\n");
  for (const char* source : {"/root", "/root/.ssh", "/root/.bash_history", "/root/.config/gh"}) {
    const Run run = script(
        "echo ran", {"--config", path("lists.toml"), "--mount", std::string(source) + ":/data"});
    EXPECT_EQ(run.status, 125) << source << run.out;
  }
}

TEST_P(RootsHomeAttack, C02_NothingBesideAProjectIsSeenThroughAnotherNameOfIt) {
  for (const char* neighbour : kNeighbours) {
    plant(neighbour);
  }
  const std::string project = kProject;
  const std::string elsewhere = folder("elsewhere");
  write_text(project + "/main", "control\n");
  plant(project + "/.env");
  std::filesystem::create_directory(project + "/bound");
  std::filesystem::create_directory(project + "/ssh");
  write_text(project + "/history", "");
  std::filesystem::create_symlink("../.aws", project + "/link");
  std::filesystem::create_symlink("/root", project + "/home");
  std::filesystem::create_symlink("../.netrc", project + "/netrc");
  std::filesystem::create_hard_link("/root/.bash_history", project + "/hard");
  std::filesystem::create_hard_link("/root/.config/gh/hosts.yml", project + "/hosts");
  const auto bind = [](const std::string& from, const std::string& to) {
    ASSERT_EQ(::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr), 0) << to;
  };
  bind("/root/.config", project + "/bound");
  bind("/root/.ssh", project + "/ssh");
  bind("/root/.python_history", project + "/history");
  bind("/root", elsewhere);
  EXPECT_EQ(read_all(project).out, "control\n");
  EXPECT_EQ(read_all(elsewhere + "/project").out, "control\n") << "the same by another name";
  const Run copy =
      attack({"run", "--workspace-from", project, "--", "sh", "-c",
              "cat main; find / -xdev -type f -size -9k -path '/workspace/*' -exec cat {} +"});
  EXPECT_EQ(copy.status, 0) << copy.err;
  for (const std::string& name :
       {std::string("/bound"), std::string("/bound/gh"), std::string("/ssh"), std::string("/link"),
        std::string("/home"), std::string("/home/.ssh"), std::string("/netrc"),
        std::string("/hard"), std::string("/hosts"), std::string("/history"), std::string("/.env"),
        std::string("/../.ssh"), std::string("/../.bash_history")}) {
    expect_refused(project + name);
  }
  for (const char* name : {"", "/.ssh", "/.config/gh", "/.bash_history", "/project/../.aws"}) {
    expect_refused(elsewhere + name);
  }
  for (const std::string& place :
       {elsewhere, project + "/history", project + "/ssh", project + "/bound"}) {
    EXPECT_EQ(::umount2(place.c_str(), MNT_DETACH), 0) << place;
  }
}

// What is beside the files of the host's /etc that sandboxes show. The test has an /etc of its own,
// a copy of the host's.
class HostEtcAttack : public MountAttack {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can mount";
    }
    MountAttack::SetUp();
  }
  void open_world() override {
    namespace fs = std::filesystem;
    const std::string copy = path("copy");
    fs::create_directory(copy);
    ASSERT_EQ(::mount("none", copy.c_str(), "tmpfs", 0, "mode=0755"), 0);
    ASSERT_EQ(std::system(("cp -a /etc/. " + copy).c_str()), 0);
    ASSERT_EQ(::mount(copy.c_str(), "/etc", nullptr, MS_BIND, nullptr), 0);
  }
  void close_world() override {
    ::umount2("/etc", MNT_DETACH);
    ::umount2(path("copy").c_str(), MNT_DETACH);
  }
  // A file below /etc with this text, instead of what is there; everybody may read it.
  static void put(const std::string& name, const std::string& text) {
    const std::string whole = "/etc/" + name;
    std::filesystem::create_directories(whole.substr(0, whole.rfind('/')));
    std::filesystem::remove_all(whole);
    write_text(whole, text);
  }
  // All that a sandbox has in /etc; attack() looks for the secret in it.
  Run read_all(const std::vector<std::string>& options = {}) {
    return script(
        "find -L /etc -type f -exec cat {} + 2>/dev/null; find / -xdev -path /proc -prune -o "
        "-newermt 2026-01-01 -type f -path '*etc*' -exec cat {} + 2>/dev/null; ls -R /etc",
        options);
  }
};
CARREL_AS_BOTH(HostEtcAttack);

TEST_P(HostEtcAttack, A01_NoNeighbourOfWhatIsShownIsInside) {
  put("inputrc", "# control of inputrc\n");
  put("maven/m2.conf", "# control of maven\n");
  put("java-17-openjdk/security/java.security", "# control of java\n");
  put("fonts/fonts.conf", "<!-- control of fonts -->\n");
  put("chromium.d/default-flags", "# control of chromium\n");
  for (const char* name : {"CANARY",
                           "environment",
                           "environment.d/secret.conf",
                           "fstab",
                           "crypttab",
                           "pip.conf",
                           "npmrc",
                           "wgetrc",
                           "curlrc",
                           "gitconfig",
                           "profile",
                           "profile.d/secret.sh",
                           "bash.bashrc",
                           "zsh/zshenv",
                           "apt/sources.list",
                           "apt/sources.list.d/private.list",
                           "apt/auth.conf",
                           "apt/auth.conf.d/secret.conf",
                           "apt/apt.conf.d/99proxy",
                           "maven/settings.xml",
                           "maven/settings-security.xml",
                           "maven/toolchains.xml",
                           "maven/logging/secret",
                           "java-17-openjdk/management/jmxremote.password",
                           "java-17-openjdk/management/management.properties",
                           "java-17-openjdk/secret",
                           "java-17-openjdk.bak/security/secret",
                           "java/secret",
                           ".java/.systemPrefs/prefs.xml",
                           "chromium.d/apikeys",
                           "chromium/policies/managed/secret.json",
                           "chromium/master",
                           "default/docker",
                           "default/useradd",
                           "default/secret",
                           "ssl/private/key.pem",
                           "ssl/secret.pem",
                           "ssl/openssl.cnf.bak",
                           "ssh/ssh_host_rsa_key",
                           "mysql/my.cnf",
                           "my.cnf",
                           "odbc.ini",
                           "php/8.2/cli/php.ini",
                           "subversion/servers",
                           "ImageMagick-6/policy.xml",
                           "R/Renviron.site",
                           "R/Rprofile.site",
                           "krb5.conf",
                           "krb5.keytab",
                           "ldap/ldap.conf",
                           "docker/daemon.json",
                           "containers/auth.json",
                           "systemd/system/secret.service",
                           "cron.d/secret",
                           "crontab",
                           "boto.cfg",
                           "s3cfg",
                           "NetworkManager/system-connections/wifi",
                           "openvpn/secret.conf",
                           "wireguard/wg0.conf",
                           "postfix/sasl_passwd",
                           "exim4/passwd.client",
                           "ppp/chap-secrets",
                           "cups/printers.conf",
                           "passwd-",
                           "hosts.bak",
                           "machine-id.bak",
                           "resolv.conf.bak",
                           "alternatives.bak/x",
                           "fonts.bak/x",
                           "python3.11/secret.py",
                           "python3/debian_config",
                           "perl/CPAN/Config.pm",
                           "groff/secret",
                           "libreoffice/secret",
                           "R/secret",
                           "ld.so.preload",
                           "login.defs",
                           "security/opasswd",
                           "sudoers.d/secret",
                           "skel/.secret",
                           "motd",
                           "issue"}) {
    put(name, canaries().secret());
  }
  const std::string hosts = read_text("/etc/hosts").value_or("");
  write_text("/etc/hosts", hosts + "192.0.2.1 " + canaries().secret() + "\n");
  const Run run = read_all();
  for (const char* control : {"inputrc", "maven", "java", "fonts", "chromium"}) {
    EXPECT_NE(run.out.find("control of " + std::string(control)), std::string::npos) << control;
  }
  const std::string id = create();
  EXPECT_NE(sh(id, "cat /etc/inputrc; grep -rs . /etc").out.find("control"), std::string::npos);
  read_all({"--user", "somebody"});
}

TEST_P(HostEtcAttack, A01_WhatIsNotRootsAloneIsNotShown) {
  namespace fs = std::filesystem;
  const std::string secret = canaries().secret();
  put("CANARY", secret);
  put("CANARIES/jvm-amd64.cfg", secret);
  put("CANARIES/security/java.security", secret);
  const auto link = [](const std::string& target, const std::string& name) {
    fs::remove_all("/etc/" + name);
    fs::create_symlink(target, "/etc/" + name);
  };
  link("/etc/CANARY", "inputrc");
  link("CANARY", "papersize");
  link("../etc/CANARY", "timezone");
  link("/usr/../etc/CANARY", "lsb-release");
  link("/etc/CANARIES", "fonts");
  link("CANARIES", "java-17-openjdk");
  link("/etc/CANARIES/", "java-21-openjdk");
  link("../CANARY", "default/locale");
  link("/proc/self/environ", "locale.conf");
  fs::create_directories("/etc/maven");
  fs::create_hard_link("/etc/CANARY", "/etc/maven/link");
  // Somebody else's, everybody's, and what only root may read.
  put("manpath.config", secret);
  ASSERT_EQ(::chown("/etc/manpath.config", Place::user_id(), 0), 0);
  put("mime.types", secret + std::string(100'000, ' '));
  ASSERT_EQ(::chown("/etc/mime.types", Place::user_id(), 0), 0);
  put("debian_version", secret);
  ASSERT_EQ(::chmod("/etc/debian_version", 0666), 0);
  put("ld.so.conf", secret);
  ASSERT_EQ(::chmod("/etc/ld.so.conf", 0600), 0);
  put("groff/man.local", secret);
  ASSERT_EQ(::chmod("/etc/groff", 0777), 0);
  put("chromium.d/default-flags", secret);
  ASSERT_EQ(::chown("/etc/chromium.d", Place::user_id(), 0), 0);
  put("ld.so.conf.d/secret", secret);
  ASSERT_EQ(::chmod("/etc/ld.so.conf.d", 0775), 0);
  // No file: nothing waits for them.
  fs::remove_all("/etc/protocols");
  ASSERT_EQ(::mkfifo("/etc/protocols", 0644), 0);
  fs::remove_all("/etc/services");
  ASSERT_EQ(::mknod("/etc/services", S_IFCHR | 0644, makedev(1, 5)), 0);
  const Run run = read_all();
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.out.find("alternatives"), std::string::npos) << "control";
  EXPECT_EQ(script("test -e /etc/protocols || test -e /etc/services || echo neither").out,
            "neither\n");
}

TEST_P(HostEtcAttack, A05_NothingOfItCanBeWritten) {
  const Run run = script(
      "cd /etc; for f in $(find . -xdev) ld.so.cache fonts fonts/fonts.conf ssl/certs mime.types; "
      "do "
      "  test -d $f && { touch $f/x; mkdir $f/y; }; test -f $f && { : >> $f; }; chmod 777 $f; "
      "  mv $f $f.old; done 2>/dev/null; ln -s /tmp /etc/x; echo mine > /etc/environment; "
      "find /etc -name x -o -name y -o -name '*.old' -o -name environment; test -s "
      "/etc/ld.so.cache "
      "&& echo control");
  EXPECT_EQ(run.out, "control\n") << run.err;
}

TEST_P(HostEtcAttack, C09_AMountBelowEtcReplacesNothingOfTheSandboxs) {
  const std::string data = folder("data");
  file("data/f", "mine\n");
  place().give(data + "/f", GetParam());
  for (const char* name :
       {"passwd", "group", "hosts", "hostname", "resolv.conf", "machine-id", "nsswitch.conf",
        "mtab", "os-release", "passwd/x", "resolv.conf/x", ""}) {
    const Run run = script("echo ran", {"--mount", data + "/f:/etc/" + name});
    EXPECT_EQ(run.status, 125) << name << run.out;
  }
  const std::string masks =
      "cut -d' ' -f5,6 /proc/self/mountinfo | grep -v '^/etc/own' | sort; touch /etc/x 2>&1; "
      "cat /etc/passwd /etc/hosts";
  const Run with =
      script(masks, {"--mount", data + ":/etc/own:rw", "--mount", data + "/f:/etc/own.d/deep/f"});
  EXPECT_EQ(with.out, script(masks).out) << with.err;
}

}  // namespace
}  // namespace carrel::test
