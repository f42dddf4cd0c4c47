#include "guest/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernel/descriptors_child.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

namespace {

std::uint64_t clock_us(clockid_t clock) {
  struct timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

std::string_view last_missing;

int answer(long result) { return result < 0 ? -errno : static_cast<int>(result); }

int answer(std::string_view call, long result) {
  if (result < 0 && errno == ENOSYS) {
    last_missing = call;
  }
  return answer(result);
}

// One name in the directory `at`, unless it is a link.
int open_name(int at, const char* name, int flags) {
  // A directory is asked for afterwards: the kernel would call a link "not a directory".
  int fd = answer(openat(at, name, (flags & ~O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC));
  if (fd < 0) {
    return fd;
  }
  struct stat info{};
  int refusal = 0;
  if (fstat(fd, &info) != 0) {
    refusal = -errno;
  } else if (S_ISLNK(info.st_mode)) {
    refusal = -ELOOP;
  } else if ((flags & O_DIRECTORY) != 0 && !S_ISDIR(info.st_mode)) {
    refusal = -ENOTDIR;
  }
  if (refusal != 0) {
    close(fd);
    return refusal;
  }
  return fd;
}

}  // namespace

std::uint64_t now_us() { return clock_us(CLOCK_MONOTONIC); }
std::uint64_t wall_clock_ms() { return clock_us(CLOCK_REALTIME) / 1000; }

std::string_view missing_call() { return last_missing; }

int open_tree(int dir, const char* path, unsigned flags) {
  return answer("open_tree (Linux 5.2)",
                syscall(SYS_open_tree, dir, path, flags | OPEN_TREE_CLOEXEC));
}
int move_mount(int from, int to, const char* path) {
  const unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (*path == '\0' ? MOVE_MOUNT_T_EMPTY_PATH : 0U);
  return answer("move_mount (Linux 5.2)", syscall(SYS_move_mount, from, "", to, path, flags));
}
int fs_open(const char* type) {
  return answer("fsopen (Linux 5.2)", syscall(SYS_fsopen, type, FSOPEN_CLOEXEC));
}
int fs_set(int context, const char* key, const char* value) {
  return answer("fsconfig (Linux 5.2)",
                value == nullptr
                    ? syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, key, nullptr, 0)
                    : syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, value, 0));
}
int fs_create(int context) {
  return answer("fsconfig (Linux 5.2)",
                syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
}
int fs_mount(int context, std::uint64_t attributes) {
  return answer("fsmount (Linux 5.2)", syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes));
}
int mount_set(int mount, std::uint64_t attributes, unsigned flags) {
  kernel::uapi::MountAttributes request{};
  request.set = attributes;
  return answer(syscall(kernel::uapi::kMountSetattr, mount, "", flags | AT_EMPTY_PATH, &request,
                        sizeof request));
}

int open_beneath(int root, const char* path, int flags) {
  struct open_how how{};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  int result = answer(syscall(SYS_openat2, root, path, &how, sizeof how));
  return result == -ENOSYS ? walk_beneath(root, path, flags) : result;
}

int walk_beneath(int root, const char* path, int flags) {
  std::string_view rest = path;
  int at = root;
  for (;;) {
    const std::size_t slash = rest.find('/');
    const bool last = slash == std::string_view::npos;
    Text<260> name;  // a name that is cut is still too long for the kernel
    name.add(rest.substr(0, slash));
    int next = name.view() == ".."
                   ? -EXDEV
                   : open_name(at, name.c_str(), last ? flags : O_PATH | O_DIRECTORY);
    if (at != root) {
      close(at);
    }
    if (next < 0 || last) {
      return next;
    }
    at = next;
    rest.remove_prefix(slash + 1);
  }
}

// CRITICAL: gVisor's kernel (seen with that of December 2022) follows a link that is to be opened
// as a directory, and not one that is only to be named. So what was opened is compared with what
// has the name.
int open_directory(int at, const char* name) {
  constexpr int kNoLink = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int named = openat(at, name, O_PATH | kNoLink);
  if (named < 0) {
    return -1;
  }
  int fd = openat(at, name, O_RDONLY | kNoLink);
  struct stat meant{};
  struct stat opened{};
  if (fd >= 0 && (fstat(named, &meant) != 0 || fstat(fd, &opened) != 0 ||
                  meant.st_dev != opened.st_dev || meant.st_ino != opened.st_ino)) {
    close(fd);
    fd = -1;
    errno = ELOOP;
  }
  int reason = errno;
  close(named);
  errno = reason;
  return fd;
}

int close_between(unsigned first, unsigned last) {
  return static_cast<int>(kernel::close_descriptors(first, last));
}
// No descriptor is larger, and gVisor takes a larger number for a negative one.
int close_from(unsigned first) { return close_between(first, 0x7fffffffU); }

bool write_whole(int fd, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return false;
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

int write_file(int dir, const char* path, std::string_view value) {
  int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) {
    return -errno;
  }
  ssize_t n = write(fd, value.data(), value.size());
  int result = n < 0 ? -errno : 0;
  close(fd);
  return result;
}

char* put_decimal(char* out, std::uint64_t value) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  while (count > 0) {
    *out++ = digits[--count];
  }
  return out;
}

}  // namespace carrel::guest
