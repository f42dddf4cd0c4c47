#include "backends/microvm/vmm_program.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "backends/microvm/hall.h"
#include "base/files.h"

namespace carrel::microvm {

void execute_vmm(const std::vector<std::string>& command, const std::vector<int>& descriptors) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) {
    words.push_back(const_cast<char*>(word.c_str()));
  }
  words.push_back(nullptr);
  // Out of the way of the fixed numbers first.
  constexpr int kAway = 64;
  std::vector<int> away;
  for (const int fd : descriptors) {
    away.push_back(fd < 0 ? -1 : ::fcntl(fd, F_DUPFD_CLOEXEC, kAway));
  }
  int next = kLineOfVmm;
  for (const int fd : away) {
    if (fd >= 0) {
      ::dup2(fd, next);
    } else {
      ::close(next);
    }
    ++next;
  }
  // CRITICAL: nothing else that is open here may be found open in the VMM.
  ::syscall(SYS_close_range, next, ~0U, 0);
  ::signal(SIGPIPE, SIG_DFL);
  std::array<char*, 1> environment = {nullptr};
  ::execve(words[0], words.data(), environment.data());
  (void)write_all(STDERR_FILENO, "the virtual machine's program cannot be executed\n");
  ::_exit(127);
}

}  // namespace carrel::microvm
