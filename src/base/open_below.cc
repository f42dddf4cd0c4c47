#include "base/open_below.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace carrel {

namespace {

int open_at_once(int root, const char* path, int flags, Mounts mounts) {
  struct open_how how{};
  how.flags = static_cast<unsigned>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  how.resolve |= mounts == Mounts::kRefused ? RESOLVE_NO_XDEV : 0;
  return static_cast<int>(::syscall(SYS_openat2, root, path, &how, sizeof how));
}

bool is_on(int fd, dev_t device) {
  struct stat info{};
  return ::fstat(fd, &info) == 0 && info.st_dev == device;
}

// Name by name.
int open_in_steps(int root, const std::string& path, int flags, Mounts mounts) {
  struct stat top{};
  if (::fstat(root, &top) != 0) {
    return -1;
  }
  UniqueFd at;
  for (std::size_t start = 0;;) {
    const std::size_t slash = path.find('/', start);
    const bool last = slash == std::string::npos;
    const std::string name = path.substr(start, last ? slash : slash - start);
    if (name.empty() || name == "..") {
      errno = EXDEV;
      return -1;
    }
    constexpr int kStep = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd next(::openat(at.valid() ? at.get() : root, name.c_str(), last ? flags : kStep));
    if (!next.valid()) {
      return -1;
    }
    if (mounts == Mounts::kRefused && !is_on(next.get(), top.st_dev)) {
      errno = EXDEV;
      return -1;
    }
    if (last) {
      return next.release();
    }
    at = std::move(next);
    start = slash + 1;
  }
}

}  // namespace

Result<UniqueFd> open_below(int root, const std::string& path, int flags, Mounts mounts) {
  const std::string name = path.empty() ? "." : path;
  const int all = flags | O_CLOEXEC | O_NOFOLLOW;
  UniqueFd fd(open_at_once(root, name.c_str(), all, mounts));
  if (!fd.valid() && errno == ENOSYS) {
    fd = UniqueFd(open_in_steps(root, name, all, mounts));
  }
  if (!fd.valid()) {
    return system_error("open '" + path + "'");
  }
  return fd;
}

}  // namespace carrel
