// What a command may do to the kernel and what it sees of the host. The attack tests go deeper;
// these are the promises one by one, as root and as an ordinary user, in all three ways to start
// something.
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <sstream>

#include "support/box.h"
#include "support/fixture.h"
#include "support/walls.h"

namespace carrel::test {
namespace {

using std::chrono::seconds;

class Privileges : public CarrelTest {};
CARREL_AS_BOTH(Privileges);

// R87
TEST_P(Privileges, RootIsReadOnly) {
  Run run = python(
      "import errno\n"
      "for p in '/x', '/usr/x', '/etc/x', '/etc/passwd', '/usr/bin/env', '/var/x', '/home/x',\\\n"
      "         '/dev/x', '/opt/x', '/run/x', '/root/x':\n"
      "  try:\n"
      "    open(p, 'a')\n"
      "    print(p, 'written')\n"
      "  except OSError as e:\n"
      "    if errno.errorcode[e.errno] not in ('EROFS', 'EACCES'):\n"
      "      print(p, e)\n"
      "try:\n"
      "  open('/usr/x', 'w')\n"
      "except OSError as e:\n"
      "  print(errno.errorcode[e.errno])\n");
  EXPECT_EQ(run.out, "EROFS\n") << run.err;
}

// R87: writable on request, and thrown away
TEST_P(Privileges, WritableRootIsThrownAway) {
  Run run = bash(
      "echo x > /usr/carrel-test-file && cat /usr/carrel-test-file; rm /usr/bin/env; "
      "ls /usr/bin/env 2>&1 | wc -l",
      {"--writable-root"});
  EXPECT_EQ(run.out, "x\n1\n") << run.err;
  EXPECT_FALSE(std::filesystem::exists("/usr/carrel-test-file"));
  EXPECT_TRUE(std::filesystem::exists("/usr/bin/env"));
  EXPECT_NE(bash("cat /usr/carrel-test-file", {"--writable-root"}).status, 0);
}

// R88, R89, R90, R91: whichever way a process is started
TEST_P(Privileges, EveryProcessIsUnprivileged) {
  const std::string script =
      "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '";
  const std::string expected =
      "Uid: 1000 1000 1000 1000\n"
      "Gid: 1000 1000 1000 1000\n"
      "CapInh: 0000000000000000\n"
      "CapPrm: 0000000000000000\n"
      "CapEff: 0000000000000000\n"
      "CapBnd: 0000000000000000\n"
      "CapAmb: 0000000000000000\n"
      "NoNewPrivs: 1\n"
      "Seccomp: 2\n";
  auto without_groups = [](const std::string& text) {
    std::istringstream lines(text);
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
      kept += line.starts_with("Groups:") ? "" : line + "\n";
    }
    return kept;
  };
  Run once = bash(script);
  EXPECT_EQ(without_groups(once.out), expected) << once.err;
  Box box(GetParam());
  EXPECT_EQ(without_groups(box.sh(script).out), expected);
  EXPECT_EQ(without_groups(box.sh(script, {"--session", "two"}).out), expected);
  EXPECT_EQ(without_groups(box.exec({"bash", "-c", script}).out), expected);
  Run terminal = carrel({"exec", "--tty", "--no-stdin", box.id(), "--", "bash", "-c", script});
  EXPECT_NE(terminal.out.find("CapEff: 0000000000000000"), std::string::npos) << terminal.out;
  EXPECT_NE(terminal.out.find("NoNewPrivs: 1"), std::string::npos) << terminal.out;
  if (as_root()) {
    EXPECT_NE(once.out.find("Groups: \n"), std::string::npos) << once.out;
  }
}

// R88
TEST_P(Privileges, SetuidProgramGainsNothing) {
  // An image with a program that is set-id root on the host: the test's own copy of `id`.
  if (!as_root()) {
    EXPECT_EQ(bash("find / -xdev -perm /6000 -type f 2>/dev/null | head -1 | xargs -r stat -c %i "
                   "> /dev/null; grep -c ' /usr ro,nosuid' /proc/self/mountinfo")
                  .out,
              "1\n");
    return;
  }
  const std::string image = place().work(GetParam()) + "/image";
  std::filesystem::create_directories(image + "/usr/bin");
  for (const char* path : {"/usr/lib", "/usr/lib64"}) {
    std::filesystem::create_directories(image + path);
  }
  std::filesystem::copy_file("/usr/bin/id", image + "/usr/bin/id");
  ASSERT_EQ(::chmod((image + "/usr/bin/id").c_str(), 06755), 0);
  for (const char* library :
       {"/lib/x86_64-linux-gnu/libc.so.6", "/lib/x86_64-linux-gnu/libselinux.so.1",
        "/lib/x86_64-linux-gnu/libpcre2-8.so.0", "/lib64/ld-linux-x86-64.so.2"}) {
    const std::string target = image + "/usr" + library;
    std::filesystem::create_directories(std::filesystem::path(target).parent_path());
    std::filesystem::copy_file(library, target);
  }
  for (const char* name : {"lib", "lib64", "bin"}) {
    std::filesystem::create_symlink(std::string("usr/") + name, image + "/" + name);
  }
  Run run = carrel({"run", "--image", "dir:" + image, "--", "/usr/bin/id"});
  EXPECT_EQ(run.out.substr(0, 8), "uid=1000") << run.out << run.err;
  EXPECT_EQ(run.out.find("euid"), std::string::npos) << run.out;
}

// R90
TEST_P(Privileges, ProcessesAreUnprivilegedOnTheHost) {
  Process process(launch({"run", "--", "bash", "-c", "sleep 600 & sleep 0.1; echo up; wait"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  bool found = false;
  for (const HostProcess& one : descendants()) {
    if (one.pid == process.pid()) {
      continue;
    }
    found = found || one.name == "sleep";
    std::istringstream ids(status_field(one.pid, "Uid"));
    for (unsigned id = 0; ids >> id;) {
      EXPECT_NE(id, 0U) << one.name;
      if (as_root()) {
        EXPECT_GE(id, 0x70000000U) << one.name;
      } else {
        EXPECT_EQ(id, Place::user_id()) << one.name;
      }
    }
  }
  EXPECT_TRUE(found);
  process.send(SIGINT);
  process.wait(seconds(5));
}

// R90: as root, two sandboxes are two users
TEST_P(Privileges, SandboxesOfRootHaveDifferentUsers) {
  if (!as_root()) {
    GTEST_SKIP() << "an ordinary user has one id to give";
  }
  Box one(GetParam());
  Box two(GetParam());
  EXPECT_NE(status_field(one.first_process(), "Uid"), status_field(two.first_process(), "Uid"));
}

// R92
TEST_P(Privileges, OnlyItsOwnProcessesAreSeen) {
  Run run =
      bash("cat /proc/[0-9]*/comm | sort | tr '\\n' ' '; ls -d /proc/[0-9]* | wc -l; kill -0 " +
           std::to_string(::getpid()) + " 2>&1 | grep -c 'No such process'");
  EXPECT_EQ(run.out.find("end_to_end"), std::string::npos) << run.out;
  EXPECT_EQ(run.out.substr(run.out.size() - 2), "1\n") << run.out;
  EXPECT_NE(bash("kill -9 1; kill -9 -1; sleep 600", {"--timeout", "2"}).status, 0);
}

TEST_P(Privileges, ProcessesStartedJustNow) {
  Run run = bash("echo $(($(date +%s) - $(date -d \"$(ps -o lstart= -p $$)\" +%s)))");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NEAR(std::atof(run.out.c_str()), 0, 30);
}

// R92: nothing can be done to the first process
TEST_P(Privileges, FirstProcessIsOutOfReach) {
  Box box(GetParam());
  (void)box.sh(
      "kill -9 1; kill -STOP 1; kill -TERM 1; cat /proc/1/mem /proc/1/environ; "
      "ls -l /proc/1/fd /proc/1/root/; prlimit --pid 1 --cpu=1; renice 19 -p 1; "
      "echo 1000 > /proc/1/oom_score_adj; taskset -p 1 1");
  EXPECT_EQ(box.sh("cat /proc/1/environ /proc/1/maps 2>/dev/null | wc -c").out, "0\n");
  EXPECT_EQ(box.sh("echo alive").out, "alive\n");
}

// R93, R101
TEST_P(Privileges, HostsFilesAndSecretsAreOutOfReach) {
  const std::string canary = "canary-7f3a1c";
  const std::string path = file("secret-" + canary, canary);
  Options options{.environment = {"CANARY_TOKEN=" + canary}};
  const std::string script =
      "cat " + path + " /proc/1/root" + path + " /proc/self/root" + path + " /proc/*/cwd" + path +
      " /proc/1/cwd/../../../.." + path +
      " 2>/dev/null;"
      "env | grep " +
      canary.substr(0, 6) + "; cat /proc/*/environ 2>/dev/null | grep -a " + canary.substr(0, 6) +
      "; grep -r " + place().home(GetParam()) +
      " /proc/self/mountinfo /proc/self/mounts /proc/self/cgroup;"
      "find / -name '*canary*' -not -path '/proc/*' 2>/dev/null;"
      "ls -A /root 2>/dev/null; ls /home/agent/.ssh /etc/shadow /var/lib 2>/dev/null; echo end";
  Run run = carrel({"run", "--", "bash", "-c", script}, options);
  EXPECT_EQ(run.out, "end\n");
}

// R93: the group's path of the host is not shown
TEST_P(Privileges, GroupIsShownFromItsOwnRoot) {
  Run run = bash("grep -v ':/$' /proc/self/cgroup | grep -c carrel");
  EXPECT_EQ(run.out, "0\n") << bash("cat /proc/self/cgroup").out;
}

// R94
TEST_P(Privileges, NetworkIsLoopbackOnly) {
  EXPECT_EQ(bash("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '").out, "lo\n");
  Run run = python(
      "import socket\n"
      "for target in ('1.1.1.1', 53), ('10.0.0.1', 80), ('169.254.169.254', 80):\n"
      "  try:\n"
      "    socket.create_connection(target, 2)\n"
      "    print('connected', target)\n"
      "  except OSError:\n"
      "    pass\n"
      "try:\n"
      "  print(socket.getaddrinfo('example.com', 80))\n"
      "except OSError:\n"
      "  print('no name')\n"
      "s = socket.create_server(('127.0.0.1', 8080))\n"
      "socket.create_connection(('127.0.0.1', 8080), 2)\n"
      "print('own loopback works')\n");
  EXPECT_EQ(run.out, "no name\nown loopback works\n") << run.err;
}

// R95
TEST_P(Privileges, IpcAndAbstractSocketsAreItsOwn) {
  int segment = ::shmget(0x0ca22e1, 4096, IPC_CREAT | 0666);
  int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "carrel-e2e-" + std::to_string(::getpid());
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  ASSERT_EQ(::listen(listener, 1), 0);
  Run run = python(
      "import socket\n"
      "print(len(open('/proc/sysvipc/shm').readlines()) - 1)\n"
      "try:\n"
      "  socket.socket(socket.AF_UNIX).connect('\\0" +
      name +
      "')\n"
      "  print('connected')\n"
      "except OSError as e:\n"
      "  print('refused')\n"
      "print('" +
      name + "' in open('/proc/net/unix').read())\n");
  ::close(listener);
  ::shmctl(segment, IPC_RMID, nullptr);
  EXPECT_EQ(run.out, "0\nrefused\nFalse\n") << run.err;
}

// R96
TEST_P(Privileges, ProcAndSysAreMasked) {
  Run run = bash(
      "for f in kcore keys key-users kallsyms kmsg timer_list slabinfo config.gz iomem sched_debug "
      "latency_stats interrupts; do head -c 64 /proc/$f 2>/dev/null | grep -qa . && echo read $f; "
      "done;"
      "for f in sysrq-trigger sys/kernel/core_pattern sys/kernel/hostname sys/vm/overcommit_memory "
      "sys/net/ipv4/ip_forward sys/kernel/ns_last_pid irq/default_smp_affinity; do "
      "(echo 0 > /proc/$f) 2>/dev/null && echo wrote $f; done;"
      "find /sys -type f 2>/dev/null | head -1; cat /proc/cmdline");
  EXPECT_EQ(run.out.find("read "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("wrote "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find("/sys"), std::string::npos) << run.out;
  EXPECT_NE(run.out, read_text("/proc/cmdline")) << "the host's boot parameters";
}

// R97
TEST_P(Privileges, DevicesAreTheFewHarmlessOnes) {
  EXPECT_EQ(bash("ls /dev | tr '\\n' ' '").out,
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ");
  Run run = bash(
      "for d in /tmp /workspace ~ /dev/shm; do mknod $d/x c 1 3 2>/dev/null && echo made; "
      "mknod $d/b b 254 0 2>/dev/null && echo made; mkfifo $d/p && echo fifo; done;"
      "echo x > /dev/null; head -c 4 /dev/zero | wc -c; head -c 4 /dev/urandom | wc -c");
  EXPECT_EQ(run.out, "fifo\nfifo\nfifo\nfifo\n4\n4\n") << run.err;
}

// R98
TEST_P(Privileges, ControlSocketsAreAbsent) {
  EXPECT_EQ(carrel({"run", "--", "bash", "-c",
                    "ls /var/run/docker.sock /run/docker.sock /run/containerd /run/dbus "
                    "/run/systemd 2>/dev/null; env | grep -E 'SSH|DOCKER|DBUS'; find / -type s "
                    "-not -path '/proc/*' 2>/dev/null; echo end"},
                   {.environment = {"SSH_AUTH_SOCK=/tmp/agent", "DOCKER_HOST=unix:///x"}})
                .out,
            "end\n");
}

// R99
TEST_P(Privileges, DangerousSystemCallsAreRefused) {
  Run run = python(
      "import ctypes, errno\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "calls = dict(mount=165, umount2=166, pivot_root=155, chroot=161, ptrace=101, "
      "kexec_load=246,\n"
      "  kexec_file_load=320, bpf=321, keyctl=250, add_key=248, request_key=249, userfaultfd=323,\n"
      "  io_uring_setup=425, setns=308, perf_event_open=298, init_module=175, finit_module=313,\n"
      "  delete_module=176, open_by_handle_at=304, swapon=167, swapoff=168, reboot=169, "
      "fsopen=430,\n"
      "  fsmount=432, open_tree=428, move_mount=429, mount_setattr=442, syslog=103, acct=163,\n"
      "  quotactl=179, settimeofday=164, clock_settime=227, sethostname=170, setdomainname=171,\n"
      "  iopl=172, ioperm=173, process_vm_readv=310, process_vm_writev=311, pidfd_getfd=438,\n"
      "  kcmp=312, fanotify_init=300, modify_ldt=154, vhangup=153, clone3=435)\n"
      "for name, number in calls.items():\n"
      "  ctypes.set_errno(0)\n"
      "  result = libc.syscall(number, 16 if name == 'ptrace' else 0, 1, 0, 0, 0)\n"
      "  code = errno.errorcode.get(ctypes.get_errno(), '0')\n"
      "  if result != -1 or code not in ('EPERM', 'ENOSYS'):\n"
      "    print(name, result, code)\n"
      "for flag in 0x10000000, 0x20000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80:\n"
      "  if libc.unshare(flag) != -1 or ctypes.get_errno() != errno.EPERM:\n"
      "    print('unshare', hex(flag), ctypes.get_errno())\n"
      "pid = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\n"
      "if pid != -1:\n"
      "  print('clone', pid)\n");
  EXPECT_EQ(run.out, "") << run.err;
  EXPECT_EQ(run.status, 0) << run.err;
}

// R100
TEST_P(Privileges, DaemonsEndWithTheirSandbox) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("python3 -c 'import os, time\n"
                   "if os.fork() == 0:\n"
                   "  os.setsid()\n"
                   "  if os.fork() == 0:\n"
                   "    os.setsid()\n"
                   "    for i in range(3): os.close(i)\n"
                   "    time.sleep(600)\n"
                   "  os._exit(0)\n'; nohup setsid sleep 600 >/dev/null 2>&1 & disown -a")
                .status,
            0);
  EXPECT_EQ(box.remove({"--force"}).status, 0);
  for (const HostProcess& process : descendants()) {
    EXPECT_NE(process.name, "python3");
    EXPECT_NE(process.name, "sleep");
  }
}

// R102
TEST_P(Privileges, IsolationThatIsNotThereIsRefused) {
  const Run vm = carrel({"run", "--isolation", "vm", "--", "echo", "ran"},
                        {.environment = {"CARREL_VM_KERNEL=/nowhere/vmlinuz"}});
  EXPECT_EQ(vm.status, 125);
  EXPECT_TRUE(says_one_line(vm, walls().named ? "weaker than 'vm'" : "as strong as 'vm'"));
  for (const std::string kind : {"gvisor", "namespace"}) {
    Run run = bash("echo ran", {"--backend", "native", "--runtime", "runsc", "--isolation", kind});
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, "has no runtime 'runsc'"));
  }
  for (const std::string backend : {"hosted", "kubernetes"}) {
    Run run = bash("echo ran", {"--backend", backend});
    EXPECT_EQ(run.status, 125);
    EXPECT_TRUE(says_one_line(run, backend));
  }
}

// R103: what is not built is refused by name, never ignored
TEST_P(Privileges, GrantThatIsNotBuiltIsRefused) {
  struct Case {
    std::string option;
    std::string value;
  };
  for (const Case& one : {Case{"--user", "root"}, Case{"--tier", "high"}}) {
    Run run = bash("echo ran", {one.option, one.value});
    EXPECT_EQ(run.status, 125) << one.option;
    EXPECT_TRUE(says_one_line(run, one.option.substr(2))) << one.option;
  }
}

}  // namespace
}  // namespace carrel::test
