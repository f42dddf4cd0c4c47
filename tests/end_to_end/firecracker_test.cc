// Sandboxes in a machine that Firecracker makes. No machine was at hand where it boots a kernel, so
// another program is in its place, which holds Carrel to what Firecracker's document says (see
// far_vmm.cc), or another in the place of the kernel.
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

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

// Devices that everybody may use, as on an ordinary host, and the program $0 as Firecracker.
constexpr char kDevices[] =
    "mount -t tmpfs none /mnt && mknod -m 666 /mnt/kvm c 10 232 && "
    "mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/kvm /dev/kvm && "
    "mount --bind /mnt/fuse /dev/fuse && umount -l /mnt && "
    "mount -t tmpfs none /usr/local/bin && ";
constexpr char kInstalled[] = "cp \"$0\" /usr/local/bin/firecracker";

class Firecracker : public CarrelTest {
 protected:
  void SetUp() override {
    CarrelTest::SetUp();
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can put another program in the place of Firecracker";
    }
    if (::access("/dev/kvm", F_OK) != 0 || ::access("/dev/fuse", F_OK) != 0) {
      GTEST_SKIP() << "this host has no /dev/kvm or no /dev/fuse";
    }
    if (::access("/usr/bin/firecracker", F_OK) == 0) {
      GTEST_SKIP() << "this host has a Firecracker of its own";
    }
  }

  // The process of a machine that serves its drive; 0: there is none.
  static pid_t librarian() {
    for (const HostProcess& one : descendants()) {
      std::error_code gone;
      const std::string folder = "/proc/" + std::to_string(one.pid) + "/fd";
      for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
        if (std::filesystem::read_symlink(entry.path(), gone) == "/dev/fuse") {
          return one.pid;
        }
      }
    }
    return 0;
  }

  // `carrel` on a host that was prepared so.
  Run on_host(const std::string& preparation, std::vector<std::string> words,
              std::vector<std::string> environment = {},
              const std::string& program = CARREL_FAR_VMM) const {
    return Process(in_namespaces(launch(std::move(words), {.environment = std::move(environment)}),
                                 {"--mount", "--propagation", "private"}, kDevices + preparation,
                                 program))
        .wait(seconds(180));
  }
  Run run_on_host(const std::string& preparation, std::vector<std::string> environment = {},
                  const std::string& program = CARREL_FAR_VMM) const {
    return on_host(preparation,
                   {"run", "--backend", "microvm", "--runtime", "firecracker", "--", "true"},
                   std::move(environment), program);
  }
};
CARREL_AS_BOTH(Firecracker);

TEST_P(Firecracker, WhereItIsNotInstalledItIsRefusedWithWhatToDo) {
  const Run refused = run_on_host("true");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "there is no Firecracker: neither /usr/bin/firecracker nor"))
      << refused.err;
}

TEST_P(Firecracker, AnOldOneIsRefused) {
  const std::string old = file("old", "#!/bin/sh\necho 'Firecracker v1.7.0'\n");
  const Run refused =
      run_on_host(std::string(kInstalled) + " && chmod 755 /usr/local/bin/*", {}, old);
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "Firecracker 1.7.0 is too old")) << refused.err;
  const std::string other = file("other", "#!/bin/sh\necho 'Firewall v9.9.9'\n");
  const Run unknown =
      run_on_host(std::string(kInstalled) + " && chmod 755 /usr/local/bin/*", {}, other);
  EXPECT_EQ(unknown.status, 125);
  EXPECT_TRUE(says_one_line(unknown, "does not tell its version")) << unknown.err;
}

// It cannot emulate, and nothing takes its place.
TEST_P(Firecracker, WithoutKvmItIsRefused) {
  const Run told = run_on_host(kInstalled, {"CARREL_VM_ACCELERATOR=tcg"});
  EXPECT_EQ(told.status, 125);
  EXPECT_TRUE(says_one_line(told,
                            "Firecracker 1.16.1 cannot emulate a machine, and there is no "
                            "KVM: CARREL_VM_ACCELERATOR says so"))
      << told.err;
  const Run closed = run_on_host(std::string(kInstalled) + " && chmod 600 /dev/kvm");
  EXPECT_EQ(closed.status, 125);
  EXPECT_TRUE(says_one_line(closed, "cannot emulate a machine")) << closed.err;
  EXPECT_NE(closed.err.find("/dev/kvm"), std::string::npos) << closed.err;
}

// And what it said is said again, also when it is not tried again.
TEST_P(Firecracker, WhereItMakesNoMachineItsOwnWordsAreTold) {
  const std::string broken =
      file("broken", "#!/bin/sh\n[ $1 = --version ] && echo 'Firecracker v1.16.1' && exit\n");
  for (int i = 0; i < 2; ++i) {
    const Run refused =
        run_on_host(std::string(kInstalled) + " && chmod 755 /usr/local/bin/*", {}, broken);
    EXPECT_EQ(refused.status, 125);
    EXPECT_TRUE(says_one_line(refused,
                              "a kernel does not boot with KVM here: the virtual machine's "
                              "program cannot be executed"))
        << refused.err;
  }
}

TEST_P(Firecracker, WithoutFuseItIsRefused) {
  const Run refused = run_on_host(std::string(kInstalled) + " && chmod 600 /dev/fuse");
  EXPECT_EQ(refused.status, 125);
  EXPECT_TRUE(says_one_line(refused, "the user of a machine may not use /dev/fuse")) << refused.err;
}

// Whoever is started as Firecracker can do with what it is given what Firecracker does with it: it
// finds a kernel, first files, a drive that can be read and not written, the place for its socket,
// and one connection to the porter, who speaks. And nothing else is open in it.
TEST_P(Firecracker, WhatItIsGivenIsWhatItCanUse) {
  const Run run = run_on_host(kInstalled);
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "far end: everything is as it should be")) << run.err;
}

// Firecracker itself, with a kernel that is none: see bare_machine.cc. Through its devices the
// drive is read and not written, and the porter is reached once and nobody else.
TEST_P(Firecracker, ItsOwnDevicesLeadToTheDriveAndTheLineAndNowhereElse) {
  const char* const program = std::getenv("CARREL_TEST_FIRECRACKER");
  if (program == nullptr) {
    GTEST_SKIP() << "name a program of Firecracker's with CARREL_TEST_FIRECRACKER";
  }
  const Run run = run_on_host(kInstalled, {"CARREL_VM_KERNEL=" CARREL_BARE_MACHINE}, program);
  EXPECT_EQ(run.status, 125);
  EXPECT_TRUE(says_one_line(run, "cannot run anything: a bare machine has a drive and a line"))
      << run.err;
}

// The same settings, and so the same drive, line, kernel and first files, in a machine that boots:
// it is QEMU's, with a socket device that is like Firecracker's.
TEST_P(Firecracker, ASandboxRunsInTheMachineThatItsSettingsDescribe) {
  const char* const named = std::getenv("CARREL_TEST_VHOST_DEVICE_VSOCK");
  const char* const home = std::getenv("HOME");
  const std::string vsock = named != nullptr ? named
                                             : std::string(home == nullptr ? "" : home) +
                                                   "/.cargo/bin/vhost-device-vsock";
  if (::access(vsock.c_str(), X_OK) != 0) {
    GTEST_SKIP() << "there is no " << vsock << ": cargo install vhost-device-vsock, or name it "
                 << "with CARREL_TEST_VHOST_DEVICE_VSOCK";
  }
  ASSERT_EQ(::access("/usr/bin/qemu-system-x86_64", X_OK), 0) << "install 'qemu-system-x86'";
  const std::string preparation =
      std::string(kInstalled) +
      " && d=/usr/lib/x86_64-linux-gnu/qemu && mount -t tmpfs none /mnt && cp -a $d/. /mnt && "
      "cp /usr/bin/qemu-system-x86_64 " +
      vsock +
      " /mnt && "
      "cp -L /usr/share/seabios/bios-256k.bin /usr/share/qemu/pvh.bin "
      "/usr/share/qemu/kvmvapic.bin /usr/share/qemu/linuxboot_dma.bin /mnt && "
      "chmod 755 /mnt /mnt/vhost-device-vsock && mount --bind /mnt $d && umount /mnt";
  const Run created = on_host(preparation, {"create", "--backend", "microvm", "--runtime",
                                            "firecracker", "--workspace", "shared"});
  ASSERT_EQ(created.status, 0) << created.err;
  const std::string id = created.out.substr(0, created.out.find('\n'));
  const Run told =
      carrel({"sh", id, "uname -r; id -u; pwd; echo kept >file; sha256sum /usr/bin/git"},
             {.timeout_seconds = 120});
  EXPECT_EQ(told.status, 0) << told.err;
  EXPECT_NE(told.out.find("-cloud-amd64\n1000\n/workspace\n"), std::string::npos) << told.out;
  Launch hash;
  hash.program = "/usr/bin/sha256sum";
  hash.arguments = {"/usr/bin/git"};
  const Run same = Process(hash).wait(seconds(10));
  EXPECT_NE(told.out.find(same.out), std::string::npos) << told.out << same.out;
  const json info = json::parse(carrel({"info", id, "--json"}).out, nullptr, false);
  ASSERT_TRUE(info.is_object());
  for (const json& row : info["enforcement"]) {
    const std::string by = row["by"];
    if (row["name"] == "built by") {
      EXPECT_TRUE(by.starts_with("Firecracker 1.16.1 with KVM, kernel ")) << by;
      EXPECT_TRUE(by.ends_with("; unverified: no machine was at hand where it boots")) << by;
    }
    if (row["name"] == "acceleration") {
      EXPECT_EQ(by, "KVM");
      EXPECT_NE(row["note"].get<std::string>().find("unverified"), std::string::npos) << row;
    }
  }
  // With whoever serves the drive everything ends, and nobody waits for it for ever.
  Process reader(launch({"exec", id, "--", "bash", "-c", "echo in; cat /usr/bin/* >/dev/null"}));
  EXPECT_TRUE(reader.wait_for_output("in", seconds(60))) << reader.err();
  const pid_t served = librarian();
  ASSERT_GT(served, 1);
  ASSERT_EQ(::kill(served, SIGKILL), 0);
  EXPECT_TRUE(eventually(seconds(10), [] {
    const std::vector<HostProcess> all = descendants();
    return std::none_of(all.begin(), all.end(),
                        [](const HostProcess& one) { return one.name.starts_with("qemu-system"); });
  }));
  EXPECT_EQ(reader.wait(seconds(30)).status, 125);
}

}  // namespace
}  // namespace carrel::test
