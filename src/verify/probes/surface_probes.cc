#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "verify/probes/probe.h"
#include "verify/probes/reviewed_syscalls.h"

// The system calls that the filter lets through, and the families of sockets.
namespace carrel::probe {
namespace {

constexpr std::array kAbsentOrRefused = {EPERM, ENOSYS};

bool is_ordinary(int family, int type, int protocol) {
  if (family == AF_NETLINK) {
    return protocol == 0 && (type == SOCK_RAW || type == SOCK_DGRAM);
  }
  if (family == AF_UNIX) {
    return type == SOCK_STREAM || type == SOCK_DGRAM || type == SOCK_SEQPACKET;
  }
  if (family != AF_INET && family != AF_INET6) {
    return false;
  }
  if (type == SOCK_DGRAM && (protocol == 1 || protocol == 58)) {
    return true;  // echo requests, which the kernel's own group range forbids or allows
  }
  return (type == SOCK_STREAM || type == SOCK_DGRAM || type == SOCK_SEQPACKET) &&
         (protocol == 0 || protocol == 6 || protocol == 17);
}

void open_sockets(Report& report, Arguments) {
  std::size_t refused = 0;
  for (int family = 0; family < 48; ++family) {
    for (int type = 0; type <= 10; ++type) {
      for (const int protocol : {0, 1, 2, 3, 6, 9, 15, 16, 17, 33, 58, 132, 136, 255, 262}) {
        const long fd = ::syscall(SYS_socket, family, type | SOCK_CLOEXEC, protocol);
        if (is_ordinary(family, type, protocol)) {
          ::close(static_cast<int>(fd));
        } else if (fd >= 0) {
          report.open("socket(" + std::to_string(family) + ", " + std::to_string(type) + ", " +
                      std::to_string(protocol) + ")");
          ::close(static_cast<int>(fd));
        } else if (errno != EPERM) {
          // The kernel itself was asked: that is what loads a module.
          report.open("socket(" + std::to_string(family) + ", " + std::to_string(type) + ", " +
                      std::to_string(protocol) + ") reached the kernel: " + error_name(errno));
        } else {
          ++refused;
        }
      }
    }
  }
  report.held(std::to_string(refused) + " kinds of sockets were refused");
  report.must_fail("init_module", ::syscall(SYS_init_module, nullptr, 0, ""));
  report.must_fail("finit_module", ::syscall(SYS_finit_module, 0, "", 0));
}

#if defined(__x86_64__)
void call_32_bit(void*) {
  long result = 20;  // getpid in the 32-bit table
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  ::_exit(result > 0 ? 42 : 43);
}

void call_x32(void*) {
  ::syscall(0x40000000L | SYS_getpid);
  ::_exit(42);
}

void judge_abi(Report& report, const std::string& name, int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) {
    report.held(name + ": killed by SIGSYS");
  } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) {
    report.not_applicable(name + ": this kernel does not have it");
  } else {
    report.open(name + ": the caller lives, status " + std::to_string(status));
  }
}
#endif

void use_other_abis(Report& report, Arguments) {
#if defined(__x86_64__)
  judge_abi(report, "int 0x80", in_child(call_32_bit, nullptr, 2));
  judge_abi(report, "x32", in_child(call_x32, nullptr, 2));
#else
  report.not_applicable("this processor has one table of calls");
#endif
}

struct Attempt {
  long number;
  long* result;
};

void call_with_zeros(void* context) {
  const Attempt& attempt = *static_cast<const Attempt*>(context);
  // A call that makes a process must not leave a second caller behind.
  const pid_t self = ::getpid();
  const long result = ::syscall(attempt.number, 0, 0, 0, 0, 0, 0);
  const int reason = errno;
  if (::getpid() != self) {
    ::_exit(0);
  }
  *attempt.result = result < 0 ? -reason : 0;
}

// Every number, not only those with names: the ones to come as well.
void call_every_number(Report& report, Arguments) {
  void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  long* result = static_cast<long*>(shared);
  std::size_t refused = 0;
  std::size_t absent = 0;
  for (long number = 0; number <= 600; ++number) {
    if (is_reviewed(number)) {
      continue;
    }
    constexpr long kNoAnswer = 1;
    *result = kNoAnswer;
    Attempt attempt{number, result};
    const int status = in_child(call_with_zeros, &attempt, 1);
    const std::string name = "call " + std::to_string(number);
    if (*result == -EPERM) {
      ++refused;
    } else if (*result == -ENOSYS) {
      ++absent;
    } else if (*result == kNoAnswer) {
      report.open(name + " ended or held its caller, status " + std::to_string(status));
    } else {
      report.open(name + ": " +
                  (*result < 0 ? error_name(static_cast<int>(-*result)) : "it worked"));
    }
  }
  report.held(std::to_string(refused) + " refused, " + std::to_string(absent) + " absent");
}

void use_rings(Report& report, Arguments) {
  std::array<unsigned, 30> parameters{};
  constexpr std::array kAbsent = {ENOSYS};
  report.must_fail_with("io_uring_setup", ::syscall(SYS_io_uring_setup, 1, parameters.data()),
                        kAbsent);
  report.must_fail_with("io_uring_enter", ::syscall(SYS_io_uring_enter, 0, 0, 0, 0, nullptr, 0),
                        kAbsent);
  report.must_fail_with("io_uring_register", ::syscall(SYS_io_uring_register, 0, 0, nullptr, 0),
                        kAbsent);
}

void use_dangerous_calls(Report& report, Arguments) {
  struct Call {
    const char* name;
    long number;
    long first;
  };
  constexpr Call kCalls[] = {
      {"userfaultfd", SYS_userfaultfd, 0},
      {"userfaultfd, user mode", SYS_userfaultfd, 1},
      {"bpf", SYS_bpf, 0},
      {"perf_event_open", SYS_perf_event_open, 0},
      {"kexec_load", SYS_kexec_load, 0},
      {"kexec_file_load", SYS_kexec_file_load, -1},
      {"init_module", SYS_init_module, 0},
      {"finit_module", SYS_finit_module, -1},
      {"delete_module", SYS_delete_module, 0},
      {"fanotify_init", SYS_fanotify_init, 0},
      {"fanotify_mark", SYS_fanotify_mark, -1},
      {"quotactl", SYS_quotactl, -1},
      {"quotactl_fd", 443, -1},
      {"syslog", SYS_syslog, 3},
      {"reboot", SYS_reboot, 0},
      {"swapon", SYS_swapon, 0},
      {"swapoff", SYS_swapoff, 0},
      {"acct", SYS_acct, 0},
      {"open_by_handle_at", SYS_open_by_handle_at, -1},
      {"kcmp", SYS_kcmp, 1},
      {"move_pages", SYS_move_pages, 0},
      {"mbind", SYS_mbind, 0},
      {"set_mempolicy", SYS_set_mempolicy, 0},
      {"migrate_pages", SYS_migrate_pages, 0},
      {"process_madvise", SYS_process_madvise, -1},
      {"vhangup", SYS_vhangup, 0},
      {"pivot_root", SYS_pivot_root, 0},
      {"chroot", SYS_chroot, 0},
      {"mount", SYS_mount, 0},
      {"umount2", SYS_umount2, 0},
      {"fsopen", 430, 0},
      {"fsconfig", 431, -1},
      {"fsmount", 432, -1},
      {"fspick", 433, -1},
      {"open_tree", 428, -1},
      {"move_mount", 429, -1},
      {"mount_setattr", 442, -1},
      {"open_tree_attr", 467, -1},
      {"listmount", 458, 0},
      {"statmount", 457, 0},
      {"lsm_get_self_attr", 459, 0},
      {"lsm_set_self_attr", 460, 0},
      {"setns", SYS_setns, -1},
      {"pidfd_getfd", 438, -1},
      {"sethostname", SYS_sethostname, 0},
      {"setdomainname", SYS_setdomainname, 0},
      {"nfsservctl", SYS_nfsservctl, 0},
      {"lookup_dcookie", SYS_lookup_dcookie, 0},
#if defined(__x86_64__)
      {"iopl", SYS_iopl, 3},
      {"ioperm", SYS_ioperm, 0},
      {"modify_ldt", SYS_modify_ldt, 0},
      {"uselib", SYS_uselib, 0},
      {"ustat", SYS_ustat, 0},
      {"sysfs", SYS_sysfs, 3},
#endif
  };
  for (const Call& call : kCalls) {
    report.must_fail_with(call.name, ::syscall(call.number, call.first, 0, 0, 0, 0, 0),
                          kAbsentOrRefused);
  }
}

constexpr char kHarmless[] = "/tmp/flipping";
constexpr char kWanted[] = "/etc/passwd\0";
static_assert(sizeof kHarmless >= sizeof kWanted);
std::array<char, 32> flipping_path;
std::atomic<int> flip_ended;

// No call is decided by a process that reads the arguments first, so there is no moment between
// the look and the act; swapping a path below the kernel must gain nothing.
void swap_arguments(Report& report, Arguments) {
  struct {
    unsigned short length;
    const void* instructions;
  } program{0, nullptr};
  report.must_fail(
      "a filter with a listener",
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  ::close(::open(kHarmless, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ::memcpy(flipping_path.data(), kHarmless, sizeof kHarmless);
  flip_ended = 0;
  pthread_t thread{};
  ::pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        while (flip_ended == 0) {
          ::memcpy(flipping_path.data(), kWanted, sizeof kWanted);
          asm volatile("" : : : "memory");  // both are seen by the other thread
          ::memcpy(flipping_path.data(), kHarmless, sizeof kHarmless);
          asm volatile("" : : : "memory");
        }
        return nullptr;
      },
      nullptr);
  struct stat wanted{};
  ::stat(kWanted, &wanted);
  std::size_t harmless = 0;
  std::size_t stolen = 0;
  for (int i = 0; i < 100000; ++i) {
    const int fd = ::open(flipping_path.data(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
      continue;
    }
    struct stat info{};
    ::fstat(fd, &info);
    (info.st_ino == wanted.st_ino && info.st_dev == wanted.st_dev ? stolen : harmless) += 1;
    ::close(fd);
  }
  flip_ended = 1;
  ::pthread_join(thread, nullptr);
  report.expect("the harmless file could be opened", harmless > 0);
  report.expect("the other one never for writing (" + std::to_string(stolen) + ")", stolen == 0);
}

constexpr Probe kProbes[] = {
    {"E09_UnusualSocketsNeverReachTheKernel", open_sockets},
    {"F02_OtherAbisAreKilled", use_other_abis},
    {"F03_NoUnreviewedCallSucceeds", call_every_number},
    {"F06_RingsAreAbsent", use_rings},
    {"F07_DangerousCallsAreRefused", use_dangerous_calls},
    {"F08_SwappedArgumentsGainNothing", swap_arguments},
};

}  // namespace

std::span<const Probe> surface_probes() { return kProbes; }

}  // namespace carrel::probe
