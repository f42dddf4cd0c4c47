#include "verify/janitor_child.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

namespace carrel::verify {

void be_janitor(int pipe, const Litter& litter) {
  ::setsid();
  for (int number = 1; number < NSIG; ++number) {
    ::signal(number, SIG_IGN);
  }
  // Nothing of the caller's is kept open by it: neither a pipe that somebody reads from, nor the
  // write end of its own.
  const int null = ::open("/dev/null", O_RDWR);
  for (int stream = 0; stream < 3; ++stream) {
    ::dup2(null, stream);
  }
  const long most = ::sysconf(_SC_OPEN_MAX);
  for (int fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); ++fd) {
    if (fd != pipe) {
      ::close(fd);
    }
  }
  char byte = 0;
  while (::read(pipe, &byte, 1) < 0 && errno == EINTR) {
  }
  for (const char* file : litter.files) {
    if (file != nullptr) {
      ::unlink(file);
    }
  }
  if (litter.folder != nullptr) {
    ::rmdir(litter.folder);
  }
  ::_exit(0);
}

}  // namespace carrel::verify
