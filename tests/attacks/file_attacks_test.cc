#include <signal.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#include "attacks/attack_test.h"

// Attacks on files and on what proc tells, seen from the host as well.
namespace carrel::test {
namespace {

class FileAttack : public AttackTest {};
CARREL_AS_BOTH(FileAttack);

// The canaries hold the descriptors 17, 251 and 900 open, without close-on-exec.
TEST_P(FileAttack, A03_NoInheritedDescriptorArrives) {
  EXPECT_TRUE(held(probe("A03_OnlyThreeDescriptorsAreOpen")));
  const Run run = script(
      "for i in $(seq 3 1023); do cat <&$i; (cd /proc/self/fd/$i && cat ../../../../root/CANARY*); "
      "done 2>/dev/null; echo end");
  EXPECT_EQ(run.out, "end\n");
}

TEST_P(FileAttack, A01_CanariesAreNotFoundByName) {
  const Run run = script(
      "find / -xdev \\( -name 'CANARY*' -o -name 'id_canary*' \\) 2>/dev/null; "
      "cat /root/CANARY* /home/*/.ssh/* /proc/*/root/root/CANARY* /proc/*/cwd/CANARY* 2>/dev/null; "
      "ls -A /root /home/*/.ssh 2>/dev/null | grep -v :; echo end");
  EXPECT_EQ(run.out, "end\n");
}

TEST_P(FileAttack, A11_ACrashStartsNothingAndLeavesNothing) {
  const Run run =
      script("ulimit -c; ulimit -c unlimited 2>&1; bash -c 'kill -SEGV $$'; echo $?; ls -A");
  EXPECT_NE(run.out.find("139"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("\ncore"), std::string::npos) << run.out;
}

// X holds its marks while Y looks, and the host has the same ones.
TEST_P(FileAttack, A19_MarksOfAnotherSandboxAndOfTheHostAreNotFound) {
  const std::vector<std::string> words = {
      "run",
      "--",
      "bash",
      "-c",
      "cat > /tmp/probe && chmod +x /tmp/probe && /tmp/probe \"$@\" && sleep 30",
      "probe",
      mount_namespace(),
      "A19_NothingOfAnotherSandboxIsFound",
      "leave"};
  Process first(launch(words));
  first.write(probe_bytes());
  first.close_input();
  ASSERT_TRUE(first.wait_for_output("marks", std::chrono::seconds(20))) << first.err();
  const int memory = ::shmget(0x43415252, 4096, IPC_CREAT | 0666);
  EXPECT_GE(memory, 0);
  EXPECT_TRUE(held(probe("A19_NothingOfAnotherSandboxIsFound")));
  ::shmctl(memory, IPC_RMID, nullptr);
  first.send(SIGTERM);
  EXPECT_FALSE(first.wait(std::chrono::seconds(10)).timed_out);
}

TEST_P(FileAttack, A22_ProcTellsNothingOfTheHost) {
  // A short name is found in anything.
  const std::string name = read_text("/proc/sys/kernel/hostname").value_or("\n");
  const bool telling = name.size() > 5;
  for (const char* path : {"/proc/cmdline", "/proc/version", "/proc/loadavg", "/proc/stat",
                           "/proc/meminfo", "/proc/mounts", "/proc/uptime",
                           "/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id",
                           "/etc/machine-id", "/etc/hostname", "/etc/passwd", "/etc/hosts"}) {
    const std::string host = read_text(path).value_or("");
    const Run run = script(std::string("cat ") + path);
    EXPECT_NE(run.out, host) << path;
    EXPECT_TRUE(!telling || run.out.find(name.substr(0, name.size() - 1)) == run.out.npos) << path;
  }
  // Seconds since the start: the sandbox's own, not the host's.
  const Run uptime = script("cat /proc/uptime");
  EXPECT_LT(std::stod(uptime.out), 30.0) << uptime.out;
}

TEST_P(FileAttack, A05_AFullDiskStopsNoCommand) {
  const Run run = script(
      "for d in /tmp /workspace /home/agent /dev/shm /var/tmp; do "
      "head -c 200M /dev/zero > $d/full 2>/dev/null; done; "
      "cat /etc/passwd > /dev/null && (exit 7); echo $?",
      {"--tmp", "8m", "--disk", "8m"});
  EXPECT_EQ(run.out, "7\n") << run.err;
}

TEST_P(FileAttack, A05_NoInodeIsLeftStopsNoCommand) {
  const Run run = script(
      "cd /tmp; i=0; while : > f$i; do i=$((i+1)); [ $i -gt 60000 ] && break; done 2>/dev/null; "
      "cd /workspace; echo \"$i\"; [ $i -lt 60000 ] && true | cat; echo done",
      {"--tmp", "4m", "--disk", "4m"});
  EXPECT_NE(run.out.find("done"), std::string::npos) << run.out << run.err;
}

}  // namespace
}  // namespace carrel::test
