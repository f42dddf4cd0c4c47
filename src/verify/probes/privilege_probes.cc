#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <sstream>

#include "verify/probes/probe.h"

// Getting more rights than one was given.
namespace carrel::probe {
namespace {

void find_capabilities(Report& report, Arguments) {
  std::istringstream lines(read_some("/proc/self/status", 65536));
  std::string line;
  std::size_t sets = 0;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string key, value;
    fields >> key >> value;
    if (key.starts_with("Cap")) {
      ++sets;
      report.expect(key + " is empty", value == "0000000000000000");
    } else if (key == "NoNewPrivs:") {
      report.expect("no new privileges", value == "1");
    } else if (key == "Groups:") {
      report.expect("no other groups", value.empty() || value == std::to_string(::getgid()));
    }
  }
  report.expect("five sets were read", sets == 5);
  for (unsigned long capability = 0; capability <= 40; ++capability) {
    report.expect("capability " + std::to_string(capability) + " is out of bounds",
                  ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) == 0);
    report.must_fail("raise ambient " + std::to_string(capability),
                     ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0));
  }
  struct __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct wanted[2] = {};
  wanted[0].inheritable = wanted[0].permitted = wanted[0].effective = 1U << CAP_SYS_ADMIN;
  report.must_fail("capset(SYS_ADMIN)", ::syscall(SYS_capset, &header, wanted));
}

void become_root(Report& report, Arguments) {
  report.must_fail("setuid(0)", ::setuid(0));
  report.must_fail("setgid(0)", ::setgid(0));
  report.must_fail("setresuid(0, 0, 0)", ::setresuid(0, 0, 0));
  report.must_fail("setreuid(0, 0)", ::setreuid(0, 0));
  const gid_t group = 0;
  report.must_fail("setgroups({0})", ::setgroups(1, &group));
  report.must_fail("setgroups({})", ::setgroups(0, nullptr));
  ::setfsuid(0);
  report.expect("the file system's user is the same",
                ::setfsuid(::getuid()) == static_cast<int>(::getuid()) && ::getuid() != 0);
  for (const char* program : {"/usr/bin/sudo -n id", "/usr/bin/su -c id", "/usr/bin/pkexec id",
                              "/usr/bin/newgrp root", "/usr/bin/passwd -S root",
                              "/usr/bin/chsh -s /bin/sh root", "/usr/bin/mount -t tmpfs x /mnt"}) {
    const std::string name(program, static_cast<std::size_t>(::strchr(program, ' ') - program));
    if (::access(name.c_str(), X_OK) != 0) {
      report.not_applicable(name + " is not there");
      continue;
    }
    const std::string line = std::string(program) + " </dev/null >/dev/null 2>&1";
    const int status = ::system(line.c_str());
    report.expect(name + " gives nothing", status != 0);
  }
}

void make_namespaces(Report& report, Arguments) {
  struct Kind {
    const char* name;
    int flag;
  };
  constexpr Kind kKinds[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},
                             {"pid", CLONE_NEWPID},   {"net", CLONE_NEWNET},
                             {"ipc", CLONE_NEWIPC},   {"uts", CLONE_NEWUTS},
                             {"time", 0x80},          {"cgroup", CLONE_NEWCGROUP}};
  for (const Kind& kind : kKinds) {
    const std::string name = kind.name;
    const unsigned long flag = static_cast<unsigned long>(kind.flag);
    if (kind.flag != 0x80) {
      const long child = ::syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);
      if (child == 0) {
        ::_exit(0);
      }
      report.must_fail("clone " + name, child);
    }
    std::array<std::uint64_t, 11> request{};
    request[0] = flag;
    request[4] = SIGCHLD;
    const long third = ::syscall(SYS_clone3, request.data(), 64);
    if (third == 0) {
      ::_exit(0);
    }
    report.must_fail("clone3 " + name, third);
    report.must_fail("unshare with other bits " + name,
                     ::syscall(SYS_unshare, flag | CLONE_FS | CLONE_FILES));
    const std::string path = "/proc/self/ns/" + name;
    const int own = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    report.must_fail("setns own " + name, ::setns(own, 0));
    const std::string first = "/proc/1/ns/" + name;
    report.must_fail("setns first " + name,
                     ::setns(::open(first.c_str(), O_RDONLY | O_CLOEXEC), 0));
    report.must_fail("unshare " + name, ::unshare(kind.flag));
  }
  const long pidfd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  report.must_fail("setns by pidfd", ::setns(static_cast<int>(pidfd), CLONE_NEWNS | CLONE_NEWUSER));
}

void use_keyrings(Report& report, Arguments) {
  constexpr int kSession = -3;
  constexpr int kUser = -4;
  constexpr int kUserSession = -5;
  for (const int ring : {kSession, kUser, kUserSession}) {
    report.must_fail("get keyring", ::syscall(SYS_keyctl, 0, ring, 1));
    report.must_fail("describe keyring", ::syscall(SYS_keyctl, 6, ring, nullptr, 0));
    report.must_fail("read keyring", ::syscall(SYS_keyctl, 11, ring, nullptr, 0));
    report.must_fail("add_key", ::syscall(SYS_add_key, "user", "carrel-probe", "x", 1, ring));
    report.must_fail("request_key",
                     ::syscall(SYS_request_key, "user", "carrel-probe", "callout", ring));
  }
  report.must_fail("join session", ::syscall(SYS_keyctl, 1, nullptr));
}

void type_into(Report& report, int fd, const std::string& name) {
  char letter = 'x';
  int discipline = 0;
  char subcode = 3;
  constexpr unsigned long kHigh = 1UL << 32;
  report.must_fail("TIOCSTI on " + name, ::syscall(SYS_ioctl, fd, TIOCSTI, &letter));
  report.must_fail("TIOCSTI|2^32 on " + name, ::syscall(SYS_ioctl, fd, TIOCSTI | kHigh, &letter));
  report.must_fail("TIOCLINUX on " + name, ::syscall(SYS_ioctl, fd, TIOCLINUX, &subcode));
  report.must_fail("TIOCSETD on " + name, ::syscall(SYS_ioctl, fd, TIOCSETD, &discipline));
  report.must_fail("TIOCCONS on " + name, ::syscall(SYS_ioctl, fd, TIOCCONS, 0));
  for (const unsigned long request : {0x4b4eUL, 0x4b33UL, 0x4b3aUL, 0x5606UL, 0x5605UL}) {
    report.must_fail("console request on " + name, ::syscall(SYS_ioctl, fd, request, 0));
  }
}

void type_into_terminals(Report& report, Arguments) {
  for (int fd = 0; fd <= 2; ++fd) {
    type_into(report, fd, "descriptor " + std::to_string(fd));
  }
  const int master = ::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  int unlock = 0;
  if (master >= 0 && ::ioctl(master, TIOCSPTLCK, &unlock) == 0) {
    const int slave = ::ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    type_into(report, master, "a terminal's master");
    type_into(report, slave, "a terminal");
  } else {
    report.not_applicable("no terminal could be made");
  }
  const int own = ::open("/dev/tty", O_RDWR | O_CLOEXEC);
  if (own >= 0) {
    type_into(report, own, "/dev/tty");
  }
}

void change_own_nature(Report& report, Arguments) {
  for (const unsigned long flags : {0x0040000UL, 0x0400000UL, 0x0100000UL, 0x1000000UL, 0x0200000UL,
                                    0x2000000UL, 0x0440000UL}) {
    report.must_fail("personality " + std::to_string(flags), ::syscall(SYS_personality, flags));
  }
  for (int field = 1; field <= 15; ++field) {
    report.must_fail("PR_SET_MM " + std::to_string(field), ::prctl(PR_SET_MM, field, 4096, 0, 0));
  }
  report.must_fail("PR_SET_SECUREBITS", ::prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS, 0, 0, 0));
  report.must_fail("PR_SET_TSC", ::prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
  report.must_fail("PR_SCHED_CORE", ::prctl(62, 1, 0, 0, 0));
  report.must_fail("PR_SET_KEEPCAPS", ::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0));
  report.must_fail("PR_SET_NO_NEW_PRIVS to 0", ::prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

// Times are set to what they are, and corrections are by nothing, so that even a success is none.
void set_clocks(Report& report, Arguments) {
  struct timespec now{};
  for (const clockid_t clock : {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_TAI}) {
    ::clock_gettime(clock, &now);
    report.must_fail("clock_settime " + std::to_string(clock), ::clock_settime(clock, &now));
    struct timex correction{};
    correction.modes = ADJ_FREQUENCY;
    report.must_fail("clock_adjtime", ::syscall(SYS_clock_adjtime, clock, &correction));
  }
  struct timeval day{};
  ::gettimeofday(&day, nullptr);
  report.must_fail("settimeofday", ::syscall(SYS_settimeofday, &day, nullptr));
  struct timezone zone{};
  report.must_fail("settimeofday zone", ::syscall(SYS_settimeofday, nullptr, &zone));
  struct timex correction{};
  correction.modes = ADJ_STATUS;
  report.must_fail("adjtimex", ::syscall(SYS_adjtimex, &correction));
}

// /dev/shm, /run and proc promise noexec. Memory files and the writable places do not: agents run
// what they build.
void execute_where_forbidden(Report& report, Arguments) {
  const std::string self = read_some("/proc/self/exe", 64U << 20);
  report.expect("the program could be read", !self.empty());
  for (const char* directory : {"/dev/shm", "/run"}) {
    const std::string path = std::string(directory) + "/program";
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (fd < 0 || ::write(fd, self.data(), self.size()) != static_cast<ssize_t>(self.size())) {
      report.held(path + " cannot be written");
      continue;
    }
    ::close(fd);
    char name[] = "probe";
    char list[] = "--list";
    std::array<char*, 3> arguments{name, list, nullptr};
    struct Job {
      const char* path;
      char** arguments;
    } job{path.c_str(), arguments.data()};
    const int status = in_child(
        [](void* context) {
          const Job& wanted = *static_cast<Job*>(context);
          const int null = ::open("/dev/null", O_WRONLY);
          ::dup2(null, 1);
          ::execv(wanted.path, wanted.arguments);
          ::_exit(99);
        },
        &job, 5);
    report.expect(path + " cannot be executed", WIFEXITED(status) && WEXITSTATUS(status) == 99);
    const int readable = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    void* mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, readable, 0);
    report.expect(path + " cannot be mapped executable", mapped == MAP_FAILED);
    ::close(readable);
    ::unlink(path.c_str());
  }
  const long memory = ::syscall(SYS_memfd_create, "probe", 0);
  report.not_applicable(memory >= 0 ? "memory files may be executed: nothing else is promised"
                                    : "there are no memory files");
}

constexpr Probe kProbes[] = {
    {"E01_NoCapabilityIsHeld", find_capabilities},
    {"E02_NobodyBecomesRoot", become_root},
    {"E04_NamespacesAreRefused", make_namespaces},
    {"E10_KeyringsAreRefused", use_keyrings},
    {"E12_TerminalsCannotBeTypedInto", type_into_terminals},
    {"E13_PersonalityAndSecurebitsAreRefused", change_own_nature},
    {"E17_ClocksCannotBeSet", set_clocks},
    {"E18_NoexecPlacesExecuteNothing", execute_where_forbidden},
};

}  // namespace

std::span<const Probe> privilege_probes() { return kProbes; }

}  // namespace carrel::probe
