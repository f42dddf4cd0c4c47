// Sandboxes in a virtual machine each: what is particular to them. A machine is emulated where KVM
// does not work, so these tests are few and each does much. They go on from a snapshot, unless
// CARREL_VM_SNAPSHOTS=off has them boot.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/box.h"
#include "support/fixture.h"
#include "support/in_namespaces.h"
#include "support/machines.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

const std::vector<std::string> kMachine = {"--backend", "microvm"};
constexpr char kQemu[] = "/usr/bin/qemu-system-x86_64";

class Microvm : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    ASSERT_EQ(::access(kQemu, X_OK), 0) << "install the package 'qemu-system-x86'";
    const char* const snapshots = std::getenv("CARREL_VM_SNAPSHOTS");
    if (snapshots == nullptr || std::string_view(snapshots) != "off") {
      use_saved_machines();
      plant_saved_machine(GetParam());
    }
  }
  void TearDown() override {
    await_savers();
    CarrelTest::TearDown();
  }

  // `carrel run` with these options and words in a machine.
  Run run(std::vector<std::string> words, std::vector<std::string> environment = {}) const {
    words.insert(words.begin(), "run");
    words.insert(words.begin() + 1, kMachine.begin(), kMachine.end());
    return carrel(std::move(words),
                  {.environment = std::move(environment), .timeout_seconds = 120});
  }

  static std::vector<std::string> with_machine(std::vector<std::string> options) {
    options.insert(options.begin(), kMachine.begin(), kMachine.end());
    return options;
  }

  static std::vector<pid_t> vmms() {
    std::vector<pid_t> found;
    for (const HostProcess& one : descendants()) {
      if (one.name.starts_with("qemu-system") && !is_being_saved(one.pid)) {
        found.push_back(one.pid);
      }
    }
    return found;
  }

  // The sandbox's process on the host.
  static pid_t porter_of(pid_t vmm) {
    for (const HostProcess& one : descendants()) {
      if (one.pid == vmm) {
        return one.parent;
      }
    }
    return 0;
  }

  static std::string newest_kernel() {
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator("/boot")) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("vmlinuz-") && name.find("-cloud-") != std::string::npos) {
        newest = std::max(newest, entry.path().string());
      }
    }
    return newest;
  }

  static std::string by(const json& info, const std::string& name) {
    for (const json& row : info["enforcement"]) {
      if (row["name"] == name) {
        return row["by"].get<std::string>();
      }
    }
    return {};
  }

  static ino_t space_of(pid_t pid, const std::string& kind) {
    struct stat info{};
    const std::string path = "/proc/" + std::to_string(pid) + "/ns/" + kind;
    return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
  }
};
CARREL_AS_BOTH(Microvm);

TEST_P(Microvm, ACommandRunsOnAKernelOfItsOwn) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  write_text(data + "/given", "given\n");
  place().give(data, GetParam());
  const Run told =
      run({"--mount", data + ":/data", "--", "bash", "-c",
           "uname -r; id -u; pwd; cat /data/given; echo x >/data/x || echo read-only; "
           "ls /sys/class/net /proc/net/dev 2>/dev/null | wc -l; grep -c : /proc/net/dev; "
           "python3 -c 'print(6 * 7)'; echo no >&2; exit 7"});
  EXPECT_EQ(told.status, 7) << told.err;
  EXPECT_NE(told.out.find("-cloud-amd64\n1000\n/workspace\ngiven\nread-only\n"), std::string::npos)
      << told.out;
  EXPECT_NE(told.out.find("\n1\n42\n"), std::string::npos) << told.out;  // one interface
  EXPECT_NE(told.err.find("no\n"), std::string::npos) << told.err;
  EXPECT_NE(told.out, read_text("/proc/sys/kernel/osrelease").value_or(""));
}

TEST_P(Microvm, ALongLivedOneIsAsElsewhere) {
  const Box box(GetParam(), with_machine({"--memory", "256m", "--pids", "40"}));
  // The shell keeps its directory, files go in and out, time is kept.
  EXPECT_EQ(box.sh("cd /tmp; X=42").status, 0);
  EXPECT_EQ(box.sh("pwd; echo $X").out, "/tmp\n42\n");
  const Run other = box.exec({"bash", "-c", "pwd; exit 3"});
  EXPECT_EQ(other.out, "/workspace\n");
  EXPECT_EQ(other.status, 3);
  const std::string given = file("given", std::string(3'000'000, 'g'));
  ASSERT_EQ(carrel({"cp", given, box.id() + ":/workspace/given"}).status, 0);
  EXPECT_EQ(box.sh("wc -c </workspace/given").out, "3000000\n");
  ASSERT_EQ(carrel({"cp", box.id() + ":/workspace/given", given + ".back"}).status, 0);
  EXPECT_EQ(read_text(given + ".back").value_or("").size(), 3'000'000U);
  EXPECT_EQ(box.sh("rm /workspace/given").status, 0);
  const Run late = box.sh("echo begun; sleep 100", {"--timeout", "2"});
  EXPECT_EQ(late.status, 124);
  EXPECT_EQ(late.out, "begun\n");
  // The limits.
  const json eater = box.result("python3 -c 'x = bytearray(600 << 20); print(len(x))'");
  EXPECT_TRUE(eater["oom_killed"].get<bool>()) << eater;
  EXPECT_NE(eater["exit_code"], 0) << eater;
  write_text(
      given + ".py",
      "import os, time\nn = 0\ntry:\n while n < 80:\n  if os.fork() == 0:\n   "
      "time.sleep(2)\n   os._exit(0)\n  n += 1\nexcept OSError:\n print('refused', n < 45)\n");
  ASSERT_EQ(carrel({"cp", given + ".py", box.id() + ":/workspace/bomb.py"}).status, 0);
  const Run bomb = box.sh("python3 /workspace/bomb.py");
  EXPECT_EQ(bomb.out, "refused True\n") << bomb.err;
  EXPECT_TRUE(eventually(seconds(20), [&] { return box.sh("echo alive").out == "alive\n"; }));
  // Standing still.
  ASSERT_EQ(carrel({"pause", box.id()}).status, 0);
  EXPECT_NE(box.sh("true").status, 0);
  ASSERT_EQ(carrel({"resume", box.id()}).status, 0);
  EXPECT_EQ(box.sh("echo on").out, "on\n");
  // What is said about it.
  const json info = box.info();
  EXPECT_EQ(info["backend"], "microvm");
  EXPECT_EQ(info["isolation"], "vm");
  EXPECT_EQ(by(info, "isolation"), "vm");
  EXPECT_TRUE(by(info, "built by").starts_with("QEMU ")) << by(info, "built by");
  EXPECT_EQ(by(info, "pids"), "rlimit");
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_TRUE(eventually(seconds(5), [] { return vmms().empty(); }));
}

// L07, L08: the VMM has nothing that it could be used for, and nobody can talk to it.
TEST_P(Microvm, TheVmmIsJailed) {
  const Box box(GetParam(), kMachine);
  const std::vector<pid_t> all = vmms();
  ASSERT_EQ(all.size(), 1U);
  const pid_t vmm = all[0];
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts"}) {
    EXPECT_NE(space_of(vmm, kind), 0U) << kind;
    EXPECT_NE(space_of(vmm, kind), space_of(::getpid(), kind)) << kind;
  }
  const std::string root = "/proc/" + std::to_string(vmm) + "/root";
  for (const char* path : {"/home", "/root", "/tmp", "/var", "/proc", "/boot", "/etc/passwd",
                           "/usr/bin/bash", "/dev/null"}) {
    EXPECT_NE(::access((root + path).c_str(), F_OK), 0) << path;
  }
  const pid_t porter = porter_of(vmm);
  ASSERT_GT(porter, 1);
  std::vector<pid_t> inside = {vmm, porter};
  for (const HostProcess& one : descendants()) {
    if (one.parent == porter && one.pid != vmm) {
      inside.push_back(one.pid);
    }
  }
  EXPECT_EQ(inside.size(), 3U);
  for (const pid_t pid : inside) {
    EXPECT_EQ(status_field(pid, "Seccomp"), "2") << pid;
    EXPECT_EQ(status_field(pid, "NoNewPrivs"), "1") << pid;
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
      EXPECT_EQ(status_field(pid, set), "0000000000000000") << pid << " " << set;
    }
    EXPECT_NE(status_field(pid, "Uid").substr(0, 2), "0\t") << pid;
  }
  std::string words = read_text("/proc/" + std::to_string(vmm) + "/cmdline").value_or("");
  std::replace(words.begin(), words.end(), '\0', ' ');
  EXPECT_NE(words.find("-monitor none"), std::string::npos) << words;
  EXPECT_NE(words.find("-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny"),
            std::string::npos)
      << words;
  EXPECT_EQ(words.find("-qmp"), std::string::npos);
  EXPECT_EQ(words.find("-netdev"), std::string::npos);
  // An emulated kernel that tries its timer panics now and then on a busy machine. One that goes on
  // from a snapshot has booted already.
  if (words.find("-append") != std::string::npos) {
    EXPECT_EQ(words.find("no_timer_check") != std::string::npos,
              words.find("-accel tcg") != std::string::npos)
        << words;
  }
}

// A workspace is the same tree, whoever's kernel writes to it.
TEST_P(Microvm, ANamedWorkspaceIsTheOneOfEveryBackend) {
  const std::vector<std::string> kNamed = {"--workspace", "w"};
  const auto in_machine = [&](const std::string& script) {
    return run({"--workspace", "w", "--", "bash", "-c", script});
  };
  ASSERT_EQ(bash("echo native > n; mkdir -p d/e; echo deep > d/e/f; ln -s n l", kNamed).status, 0);
  const Run told = in_machine(
      "cat n l d/e/f; echo machine > m; echo more >> n; mv d/e d/g; rm l; ln n h; chmod 640 m; "
      "mkfifo p; truncate -s 3 d/g/f; touch -d @1000000000 d; stat -c '%u:%g %a' m; ls; "
      "python3 -c 'import mmap; f = open(\"n\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); "
      "m[0:6] = b\"MAPPED\"'; cat n; ls -d /workspace/..; cat ../workspace/m");
  EXPECT_EQ(told.status, 0) << told.err;
  EXPECT_EQ(told.out,
            "native\nnative\ndeep\n1000:1000 640\nd\nh\nm\nn\np\nMAPPED\nmore\n"
            "/workspace/..\nmachine\n");
  const Run after = bash(
      "cat n m h d/g/f; stat -c '%u:%g %a %F' m p; stat -c %Y d; test -e l || echo gone", kNamed);
  EXPECT_EQ(after.out,
            "MAPPED\nmore\nmachine\nMAPPED\nmore\ndee1000:1000 640 regular file\n"
            "1000:1000 644 fifo\n1000000000\ngone\n")
      << after.err;
  // What has no place on the host is refused.
  const Run refused = in_machine(
      "mknod c c 1 3 || echo no device; chmod u+s m && stat -c %a m || echo no set-id; "
      "dd if=/dev/zero of=big bs=1M count=5 status=none && stat -c %s big; rm big");
  EXPECT_EQ(refused.out, "no device\nno set-id\n5242880\n") << refused.err;
  EXPECT_EQ(carrel({"workspace", "rm", "w"}).status, 0);
}

TEST_P(Microvm, ARunningOneIsSnapshottedRestoredAndForked) {
  const auto says = [&](std::vector<std::string> words) {
    const Run ran = carrel(std::move(words), {.timeout_seconds = 60});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  };
  {
    const Box box(GetParam(), with_machine({"--workspace", "w"}));
    ASSERT_EQ(box.sh("echo first > a; mkdir d; echo kept > d/b").status, 0);
    std::string first = says({"snapshot", box.id()});
    first = first.substr(0, first.find_first_of(" \n"));
    // Somebody writes all the time; and a page that was changed by its address, and not told.
    ASSERT_EQ(box.sh("(while :; do date >> log; done) & echo second > a; rm -r d").status, 0);
    const Run changed = carrel({"diff", box.id()}, {.timeout_seconds = 60});
    EXPECT_NE(changed.out.find("d/b"), std::string::npos) << changed.out << changed.err;
    says({"restore", box.id(), first});
    EXPECT_EQ(box.sh("cat a d/b").out, "first\nkept\n");
    const Run copied = carrel({"cp", box.id() + ":/workspace/a", file("a.back", "")});
    EXPECT_EQ(copied.status, 0) << copied.err;
    const json info = box.info();
    EXPECT_EQ(by(info, "mount /workspace"), "read-write") << info;
    std::string fork = says({"fork", box.id()});
    fork = fork.substr(0, fork.find_first_of(" \n"));
    const Run forked =
        carrel({"sh", fork, "cat a d/b; echo other > a; rm d/b; ls d"}, {.timeout_seconds = 60});
    EXPECT_EQ(forked.out, "first\nkept\n") << forked.err;
    EXPECT_EQ(box.sh("cat a d/b").out, "first\nkept\n");
    EXPECT_EQ(carrel({"rm", "--force", fork}).status, 0);
    EXPECT_EQ(box.remove({"--force"}).status, 0);
  }
  const json list = json::parse(carrel({"workspace", "ls", "--json"}).out, nullptr, false);
  for (const json& one : list["workspaces"]) {
    EXPECT_EQ(carrel({"workspace", "rm", one["name"]}).status, 0);
  }
}

TEST_P(Microvm, AMountIsWrittenToAsNatively) {
  const std::string data = place().work(GetParam()) + "/data";
  ASSERT_EQ(::mkdir(data.c_str(), 0755), 0);
  write_text(data + "/given", "given\n");
  write_text(data + "/.env", "SECRET=1\n");
  write_text(place().work(GetParam()) + "/alone", "alone\n");
  for (const char* name : {"", "/given", "/.env", "/../alone"}) {
    place().give(data + name, GetParam());
  }
  ASSERT_EQ(bash("echo x > /data/native", {"--mount", data + ":/data:rw"}).status, 0);
  const Run told =
      run({"--mount", data + ":/data:rw", "--mount", place().work(GetParam()) + "/alone:/file:rw",
           "--", "bash", "-c",
           "cat /data/given /file; echo y > /data/machine; echo changed > /file; cat /data/.env; "
           "ln -s ../../../../etc/hostname /data/link; cat /data/link | wc -l; "
           "chmod 4755 /data/machine || echo no set-id; echo z > /data/new/x || echo no folder"});
  EXPECT_EQ(told.status, 0) << told.err;
  EXPECT_EQ(told.out, "given\nalone\n1\nno set-id\nno folder\n") << told.err;
  EXPECT_EQ(read_text(data + "/machine").value_or(""), "y\n");
  EXPECT_EQ(read_text(place().work(GetParam()) + "/alone").value_or(""), "changed\n");
  struct stat native{};
  struct stat machine{};
  ASSERT_EQ(::stat((data + "/native").c_str(), &native), 0);
  ASSERT_EQ(::stat((data + "/machine").c_str(), &machine), 0);
  EXPECT_EQ(machine.st_uid, native.st_uid);
  EXPECT_EQ(machine.st_gid, native.st_gid);
  EXPECT_EQ(machine.st_mode, native.st_mode);
}

// Whoever writes for a machine has what that may write to, and nothing else.
TEST_P(Microvm, TheClerkIsJailed) {
  const Box box(GetParam(), with_machine({"--workspace", "w"}));
  ASSERT_EQ(vmms().size(), 1U);
  const pid_t porter = porter_of(vmms()[0]);
  std::size_t clerks = 0;
  for (const HostProcess& one : descendants()) {
    if (one.parent != porter || one.pid == vmms()[0]) {
      continue;
    }
    ++clerks;
    for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts"}) {
      EXPECT_NE(space_of(one.pid, kind), space_of(::getpid(), kind)) << kind;
    }
    EXPECT_EQ(status_field(one.pid, "Seccomp"), "2");
    EXPECT_EQ(status_field(one.pid, "CapEff"), "0000000000000000");
    const std::string root = "/proc/" + std::to_string(one.pid) + "/root";
    EXPECT_NE(::access((root + "/etc/passwd").c_str(), F_OK), 0);
    EXPECT_NE(::access((root + "/proc").c_str(), F_OK), 0);
  }
  EXPECT_EQ(clerks, 2U);  // the librarian is the other one
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  EXPECT_EQ(carrel({"workspace", "rm", "w"}).status, 0);
}

// Nothing is left, whoever of them is killed.
TEST_P(Microvm, WithAnyOfItsProcessesEverythingEnds) {
  {
    const Box box(GetParam(), kMachine);
    const std::vector<pid_t> all = vmms();
    ASSERT_EQ(all.size(), 1U);
    // CRITICAL: of another number than a process's, everybody would be ended.
    ASSERT_GT(all[0], 1);
    ASSERT_EQ(::kill(all[0], SIGKILL), 0);
    EXPECT_TRUE(eventually(seconds(5), [] { return vmms().empty(); }));
    EXPECT_TRUE(eventually(seconds(5), [&] { return box.sh("true").status != 0; }));
  }
  {
    // The keeper may die: the machine goes on, and can be reached.
    const Box box(GetParam(), kMachine);
    const std::vector<HostProcess> keepers = processes_of("keeper");
    ASSERT_FALSE(keepers.empty());
    for (const HostProcess& keeper : keepers) {
      ASSERT_GT(keeper.pid, 1);
      ASSERT_EQ(::kill(keeper.pid, SIGKILL), 0);
    }
    EXPECT_EQ(box.sh("echo on").out, "on\n");
    ASSERT_EQ(vmms().size(), 1U);
    const pid_t porter = porter_of(vmms()[0]);
    ASSERT_GT(porter, 1);
    ASSERT_EQ(::kill(porter, SIGKILL), 0);
    EXPECT_TRUE(eventually(seconds(5), [] { return vmms().empty(); }));
  }
  Process once(launch({"run", "--backend", "microvm", "--", "bash", "-c", "echo in; sleep 100"}));
  EXPECT_TRUE(once.wait_for_output("in", seconds(90))) << once.err();
  EXPECT_EQ(vmms().size(), 1U);
  once.send(SIGKILL);
  EXPECT_TRUE(eventually(seconds(5), [] { return vmms().empty(); }));
}

TEST_P(Microvm, IsolationPicksIt) {
  const Run chosen = carrel({"run", "--isolation", "vm", "--", "uname", "-r"});
  EXPECT_NE(chosen.out.find("-cloud-amd64"), std::string::npos) << chosen.out << chosen.err;
  const Run weaker = carrel({"run", "--isolation", "vm", "--backend", "native", "--", "true"});
  EXPECT_EQ(weaker.status, 125);
}

TEST_P(Microvm, DoctorTriesIt) {
  const Run run = carrel({"doctor", "--json"}, {.timeout_seconds = 120});
  const json told = json::parse(run.out, nullptr, false);
  ASSERT_TRUE(told.is_object()) << run.out << run.err;
  json found;
  for (const json& check : told["checks"]) {
    found = check["name"] == "backend microvm" ? check : found;
  }
  ASSERT_TRUE(found.is_object()) << told;
  EXPECT_NE(found["status"], "missing") << found;
  EXPECT_NE(found["detail"].get<std::string>().find("works with QEMU "), std::string::npos)
      << found;
  // The other one: it is missing, or said to be what nobody has seen.
  json other;
  for (const json& check : told["checks"]) {
    other = check["name"] == "backend microvm firecracker" ? check : other;
  }
  ASSERT_TRUE(other.is_object()) << told;
  EXPECT_TRUE(other["status"] == "missing" ||
              other["detail"].get<std::string>().find("unverified") != std::string::npos)
      << other;
}

// What it cannot do is said, never left out.
TEST_P(Microvm, WhatItDoesNotHaveIsRefused) {
  const struct {
    std::vector<std::string> options;
    std::string said;
  } kTable[] = {
      {{"--runtime", "xen"}, "not by 'xen'"},
  };
  for (const auto& row : kTable) {
    std::vector<std::string> words = row.options;
    words.insert(words.end(), {"--", "true"});
    const Run refused = run(words);
    EXPECT_EQ(refused.status, 125) << row.said;
    EXPECT_NE(refused.err.find(row.said), std::string::npos) << refused.err;
  }
}

TEST_P(Microvm, AKernelThatIsMissingOrBrokenIsToldInTime) {
  const Run missing = run({"--", "true"}, {"CARREL_VM_KERNEL=/nowhere/vmlinuz"});
  EXPECT_EQ(missing.status, 125);
  EXPECT_NE(missing.err.find("linux-image-cloud-amd64"), std::string::npos) << missing.err;
  const Run other = run({"--", "true"}, {"CARREL_VM_KERNEL=/bin/true"});
  EXPECT_EQ(other.status, 125);
  EXPECT_NE(other.err.find("is no Linux kernel"), std::string::npos) << other.err;
  // One that begins and does nothing any more: the code after its header jumps to itself.
  std::string image = read_text(newest_kernel()).value_or("");
  ASSERT_GT(image.size(), 1U << 20);
  const auto sectors = static_cast<unsigned char>(image[0x1f1]);
  for (std::size_t at = (sectors + 1U) * 512; at + 1 < image.size(); at += 2) {
    image[at] = '\xeb';
    image[at + 1] = '\xfe';
  }
  const std::string broken = file("vmlinuz-broken", image);
  const Run hangs = run({"--", "true"}, {"CARREL_VM_KERNEL=" + broken, "CARREL_VM_BOOT_SECONDS=3"});
  EXPECT_EQ(hangs.status, 125);
  EXPECT_NE(hangs.err.find("did not start in time"), std::string::npos) << hangs.err;
  EXPECT_LT(hangs.duration, patient(seconds(30)));
}

TEST_P(Microvm, WithoutQemuItIsRefusedWithWhatToInstall) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can hide a program";
  }
  const Run hidden =
      Process(in_namespaces(launch({"run", "--backend", "microvm", "--", "true"}), {"--mount"},
                            "mount -t tmpfs none /usr/share/qemu; mount --bind /dev/null "
                            "/usr/bin/qemu-system-x86_64"))
          .wait(seconds(60));
  EXPECT_EQ(hidden.status, 125);
  EXPECT_NE(hidden.err.find("qemu-system-x86"), std::string::npos) << hidden.err;
}

}  // namespace
}  // namespace carrel::test
