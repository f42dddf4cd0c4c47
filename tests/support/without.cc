// without NAME[,NAME...] PROGRAM [ARGUMENT...]
//
// Executes PROGRAM on a kernel that seems to lack system calls: a filter answers for them, in it
// and in everything that it starts. A NAME is that of a system call, or of one of its flags.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <vector>

namespace {

constexpr int kUsage = 2;

struct Missing {
  std::string_view name;
  unsigned number;
  unsigned answer = ENOSYS;
  unsigned argument = 0;  // with `flag`: which argument has to have it
  unsigned flag = 0;      // 0: the whole call is missing
};

constexpr std::array kKnown = {
    Missing{"clone3", SYS_clone3},
    Missing{"clone3_flags", SYS_clone3,
            EINVAL},  // they are behind a pointer: as if all were unknown
    Missing{"close_range", 436},
    Missing{"close_range_cloexec", 436, EINVAL, 2, 1U << 2},
    Missing{"execveat", SYS_execveat},
    Missing{"fchmodat2", 452},
    Missing{"fsconfig", SYS_fsconfig},
    Missing{"fsmount", SYS_fsmount},
    Missing{"fsopen", SYS_fsopen},
    Missing{"keyctl", SYS_keyctl},
    Missing{"landlock", 444},
    Missing{"memfd_create", SYS_memfd_create},
    Missing{"memfd_exec", SYS_memfd_create, EINVAL, 1, 0x8 | 0x10},
    Missing{"mount_setattr", 442},
    Missing{"mprotect", SYS_mprotect, EPERM},
    Missing{"move_mount", SYS_move_mount},
    Missing{"open_tree", SYS_open_tree},
    Missing{"openat2", SYS_openat2},
    Missing{"pidfd_open", SYS_pidfd_open},
    Missing{"pidfd_send_signal", SYS_pidfd_send_signal},
    Missing{"seccomp", SYS_seccomp},
    Missing{"time_namespace", SYS_unshare, EINVAL, 0, 0x80},
};

void add(std::vector<sock_filter>& program, const Missing& one) {
  const unsigned argument = static_cast<unsigned>(offsetof(seccomp_data, args)) + one.argument * 8;
  const unsigned char skip = one.flag == 0 ? 1 : 3;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one.number, 0, skip));
  if (one.flag != 0) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, one.flag, 0, 1));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | one.answer));
}

bool add(std::vector<sock_filter>& program, std::string_view name) {
  for (const Missing& one : kKnown) {
    if (one.name == name) {
      add(program, one);
      return true;
    }
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    ::fputs("usage: without NAME[,NAME...] PROGRAM [ARGUMENT...]\n", stderr);
    return kUsage;
  }
  std::vector<sock_filter> program;
  std::string_view names = argv[1];
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(name.size() + (name.size() < names.size() ? 1 : 0));
    if (!add(program, name)) {
      ::fprintf(stderr, "without: '%.*s' is not known\n", static_cast<int>(name.size()),
                name.data());
      return kUsage;
    }
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  // Root loads it without this, as nothing may change for a program of root's.
  if (::geteuid() != 0) {
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  }
  if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
    ::perror("without: load the filter");
    return kUsage;
  }
  ::execv(argv[2], argv + 2);
  ::perror(argv[2]);
  return kUsage;
}
