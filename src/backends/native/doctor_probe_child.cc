#include "backends/native/doctor_probe_child.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "kernel/descriptors_child.h"
#include "kernel/seccomp.h"
#include "kernel/uapi/landlock.h"
#include "kernel/uapi/mount.h"

namespace carrel::native {

namespace {

constexpr int kCloneNewTime = 0x80;

// 0 or the errno of a call that answers -1.
int reason(long answer) { return answer < 0 ? errno : 0; }

pid_t clone_plainly(unsigned long long flags, int cgroup) {
  int pidfd = -1;
  struct clone_args arguments{};
  arguments.flags = flags | CLONE_PIDFD;
  arguments.pidfd = reinterpret_cast<unsigned long long>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = cgroup >= 0 ? static_cast<unsigned long long>(cgroup) : 0;
  long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) {
    return -errno;
  }
  if (pid == 0) {
    // A doctor that is stopped takes its trials along.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  } else {
    ::close(pidfd);
  }
  return static_cast<pid_t>(pid);
}

int try_openat2() {
  struct open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return reason(::syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof how));
}

int try_pidfd() {
  const long self = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  return self < 0 ? errno : reason(::syscall(SYS_pidfd_send_signal, self, 0, nullptr, 0));
}

int try_landlock(TrialBoard& board) {
  using namespace kernel::uapi;
  long abi = ::syscall(kLandlockCreateRuleset, nullptr, 0, kLandlockQueryVersion);
  if (abi < 0) {
    return errno;
  }
  board.landlock_abi = static_cast<int>(abi);
  // The right to make symbolic links: it is not needed any more here.
  LandlockRuleset attributes{};
  attributes.handled_fs = 1U << 12;
  long ruleset = ::syscall(kLandlockCreateRuleset, &attributes, sizeof attributes.handled_fs, 0);
  return ruleset < 0 ? errno : reason(::syscall(kLandlockRestrictSelf, ruleset, 0));
}

int try_seccomp() {
  sock_filter allow_all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  return kernel::load_seccomp_child(sock_fprog{1, &allow_all});
}

int bring_up_loopback() {
  int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return errno;
  }
  struct ifreq request{};
  request.ifr_name[0] = 'l';
  request.ifr_name[1] = 'o';
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return reason(::ioctl(fd, SIOCSIFFLAGS, &request));
}

// The ids that the map gives, as the launch takes them.
int become_inner_root(Groups groups) {
  if (::syscall(SYS_setresgid, 0, 0, 0) != 0) {
    return errno;
  }
  if (groups == Groups::kDrop && ::syscall(SYS_setgroups, 0, nullptr) != 0) {
    return errno;
  }
  return reason(::syscall(SYS_setresuid, 0, 0, 0));
}

bool unshare_one(TrialBoard& board, Feature feature, int flag) {
  board.begin(feature);
  board.finish(feature, reason(::unshare(flag)));
  return board.works(feature);
}

// The errno that the kernel answers the messages with.
int tell_kernel(int protocol, std::string_view messages) {
  const int fd = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
  struct {
    nlmsghdr head;
    nlmsgerr error;
    char rest[256];
  } answer{};
  if (fd < 0 || ::send(fd, messages.data(), messages.size(), 0) < 0 ||
      ::recv(fd, &answer, sizeof answer, 0) < 0) {
    return errno;
  }
  ::close(fd);
  return -answer.error.error;
}

}  // namespace

pid_t start_trial(TrialBoard& board) {
  pid_t pid = clone_plainly(CLONE_CLEAR_SIGHAND, -1);
  if (pid == 0) {
    return 0;
  }
  board.finish(Feature::kClone3, pid < 0 ? -pid : 0);
  if (pid > 0) {
    return pid;
  }
  pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  return pid < 0 ? -errno : pid;
}

pid_t start_in_group(int directory) {
  return clone_plainly(CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP, directory);
}

void try_plain_calls(TrialBoard& board, int image) {
  constexpr unsigned kCloseOnExec = 1U << 2;
  board.begin(Feature::kOpenat2);
  board.finish(Feature::kOpenat2, try_openat2());
  board.begin(Feature::kCloseRange);
  board.finish(Feature::kCloseRange,
               reason(::syscall(kernel::uapi::kCloseRange, 3, ~0U, kCloseOnExec)));
  board.begin(Feature::kPidfd);
  board.finish(Feature::kPidfd, try_pidfd());
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  board.begin(Feature::kLandlock);
  board.finish(Feature::kLandlock, try_landlock(board));
  board.begin(Feature::kSeccomp);
  board.finish(Feature::kSeccomp, try_seccomp());
  if (image < 0 || kernel::close_on_exec(3, ~0U) != 0) {
    ::_exit(0);
  }
  // The guest ends at once, because there is no control stream. That it was executed shows in this
  // note not being taken back.
  board.finish(Feature::kMemfdExec, 0);
  static char name[] = "carrel-guest";
  char* arguments[] = {name, nullptr};
  char* environment[] = {nullptr};
  if (::syscall(SYS_execveat, image, "", arguments, environment, AT_EMPTY_PATH) != 0 &&
      errno == ENOSYS) {
    ::fexecve(image, arguments, environment);
  }
  board.finish(Feature::kMemfdExec, errno);
  ::_exit(0);
}

void try_namespaces(TrialBoard& board, const NamespacePipes& pipes, Groups groups) {
  char byte = 'r';
  if (!unshare_one(board, Feature::kUserNamespace, CLONE_NEWUSER) ||
      ::write(pipes.ready, &byte, 1) != 1 || ::read(pipes.go, &byte, 1) != 1) {
    ::_exit(1);
  }
  board.begin(Feature::kIdMap);
  board.finish(Feature::kIdMap, become_inner_root(groups));
  if (!board.works(Feature::kIdMap)) {
    ::_exit(1);
  }
  // The change of ids has cleared both; a launch gets the second one back by executing the guest,
  // and without it the files of /proc/self belong to the host's root.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  const bool mounts = unshare_one(board, Feature::kMountNamespace, CLONE_NEWNS);
  unshare_one(board, Feature::kIpcNamespace, CLONE_NEWIPC);
  unshare_one(board, Feature::kTimeNamespace, kCloneNewTime);
  unshare_one(board, Feature::kCgroupNamespace, CLONE_NEWCGROUP);
  if (unshare_one(board, Feature::kUtsNamespace, CLONE_NEWUTS)) {
    board.begin(Feature::kUtsNamespace);
    board.finish(Feature::kUtsNamespace, reason(::sethostname("sandbox", 7)));
  }
  if (unshare_one(board, Feature::kNetworkNamespace, CLONE_NEWNET)) {
    board.begin(Feature::kLoopback);
    board.finish(Feature::kLoopback, bring_up_loopback());
    board.begin(Feature::kCaptiveNetwork);
    int refused = tell_kernel(NETLINK_ROUTE, pipes.routes);
    board.finish(Feature::kCaptiveNetwork,
                 refused != 0 ? refused : tell_kernel(NETLINK_NETFILTER, pipes.rules));
  }
  const bool processes = unshare_one(board, Feature::kPidNamespace, CLONE_NEWPID);
  if (!mounts || !processes) {
    ::_exit(1);
  }
  pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try_mounts(board);
    ::_exit(0);
  }
  if (first < 0) {
    board.finish(Feature::kPidNamespace, errno);
    ::_exit(1);
  }
  while (::waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

void try_limits(TrialBoard& board, const LimitTrial& trial) {
  for (int fd : trial.join) {
    if (::write(fd, "0", 1) != 1) {
      ::_exit(1);
    }
  }
  for (int i = 0; i < trial.forks; ++i) {
    pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::pause();
      ::_exit(0);
    }
    board.forks_refused += child < 0 && errno == EAGAIN ? 1 : 0;
  }
  void* area = ::mmap(nullptr, trial.memory, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  volatile unsigned turns = area == MAP_FAILED ? 0 : 1;
  for (;;) {
    turns = turns + 1;
  }
}

}  // namespace carrel::native
