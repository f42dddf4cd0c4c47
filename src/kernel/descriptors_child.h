#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "kernel/raw_call_child.h"
#include "kernel/uapi/mount.h"

// Closing the descriptors that a program must not inherit. close_range() does it, and where the
// kernel does not have that (before 5.9, its flag before 5.11), what /proc/self/fd lists is closed
// one by one. Results are 0 or a negative errno; CRITICAL: after an error some may still be open.
namespace carrel::kernel {

// Calls `act` with each open descriptor between the two.
template <typename Act>
long each_descriptor(unsigned first, unsigned last, Act act) {
  const long directory =
      raw_call(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) {
    return directory;
  }
  // struct linux_dirent64: inode, offset, length of the entry, type, name.
  constexpr long kLengthAt = 16;
  constexpr long kNameAt = 19;
  alignas(8) unsigned char entries[1024] = {};
  long size;
  while ((size = raw_call(SYS_getdents64, directory, &entries[0], sizeof entries)) > 0) {
    for (long at = 0; at < size;) {
      unsigned fd = 0;
      const unsigned char* digit = &entries[at + kNameAt];
      for (; *digit >= '0' && *digit <= '9'; ++digit) {
        fd = fd * 10 + (*digit - '0');
      }
      const bool is_number = digit != &entries[at + kNameAt];  // "." and ".." are not
      if (is_number && fd >= first && fd <= last && fd != static_cast<unsigned>(directory)) {
        act(fd);
      }
      unsigned short length;
      __builtin_memcpy(&length, &entries[at + kLengthAt], sizeof length);
      at += length;
    }
  }
  raw_call(SYS_close, directory);
  return size;
}

inline long close_descriptors(unsigned first, unsigned last) {
  const long result = raw_call(uapi::kCloseRange, first, last, 0);
  return result != -ENOSYS
             ? result
             : each_descriptor(first, last, [](unsigned fd) { raw_call(SYS_close, fd); });
}

// They are closed when this process executes a program.
inline long close_on_exec(unsigned first, unsigned last) {
  constexpr unsigned kCloseOnExec = 1U << 2;  // CLOSE_RANGE_CLOEXEC
  const long result = raw_call(uapi::kCloseRange, first, last, kCloseOnExec);
  return result != -ENOSYS && result != -EINVAL ? result
                                                : each_descriptor(first, last, [](unsigned fd) {
                                                    raw_call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
                                                  });
}

}  // namespace carrel::kernel
