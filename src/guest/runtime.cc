#include "guest/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "kernel/uapi/mount.h"

namespace carrel::guest {

namespace {

std::uint64_t clock_us(clockid_t clock) {
  struct timespec now {};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

int answer(long result) { return result < 0 ? -errno : static_cast<int>(result); }

}  // namespace

std::uint64_t now_us() { return clock_us(CLOCK_MONOTONIC); }
std::uint64_t wall_clock_ms() { return clock_us(CLOCK_REALTIME) / 1000; }

int open_tree(int dir, const char* path, unsigned flags) {
  return answer(syscall(SYS_open_tree, dir, path, flags | OPEN_TREE_CLOEXEC));
}
int move_mount(int from, int to) {
  return answer(syscall(SYS_move_mount, from, "", to, "",
                        MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH));
}
int fs_open(const char* type) { return answer(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)); }
int fs_set(int context, const char* key, const char* value) {
  return answer(value == nullptr
                    ? syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, key, nullptr, 0)
                    : syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, key, value, 0));
}
int fs_create(int context) {
  return answer(syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
}
int fs_mount(int context, std::uint64_t attributes) {
  return answer(syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, attributes));
}
int mount_set(int mount, std::uint64_t attributes, unsigned flags) {
  kernel::uapi::MountAttributes request{};
  request.set = attributes;
  return answer(syscall(kernel::uapi::kMountSetattr, mount, "", flags | AT_EMPTY_PATH, &request,
                        sizeof request));
}
int open_beneath(int root, const char* path, int flags) {
  struct open_how how {};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return answer(syscall(SYS_openat2, root, path, &how, sizeof how));
}
int close_from(int first) { return answer(syscall(kernel::uapi::kCloseRange, first, ~0U, 0)); }

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
