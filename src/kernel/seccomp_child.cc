#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/seccomp.h"

namespace carrel::kernel {

int load_seccomp_child(const sock_fprog& program) noexcept {
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
    return errno;
  }
  return 0;
}

}  // namespace carrel::kernel
