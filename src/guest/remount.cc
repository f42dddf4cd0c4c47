#include "guest/remount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <string_view>

#include "guest/proc.h"
#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

namespace {

using namespace kernel::uapi;

// The attributes have the same numbers as the flags of mount() and of statfs().
constexpr std::uint64_t kAttributes = kAttrReadOnly | kAttrNoSuid | kAttrNoDev | kAttrNoExec;
static_assert(kAttributes == (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC));
constexpr std::uint64_t kStatNoSymFollow = 0x2000;
constexpr unsigned long kMountNoSymFollow = 256;

int flags_of(int mount, std::uint64_t& flags) {
  struct statfs info{};
  if (fstatfs(mount, &info) != 0) {
    return -errno;
  }
  flags = static_cast<std::uint64_t>(info.f_flags);
  return 0;
}

int remount_one(int mount_fd, std::uint64_t attributes) {
  std::uint64_t present = 0;
  int result = flags_of(mount_fd, present);
  if (result < 0) {
    return result;
  }
  // A remount sets all flags anew, and refuses to take one away that the host's mount had; only
  // those of access times stay by themselves.
  unsigned long flags = attributes | (present & kAttributes);
  flags |= (present & kStatNoSymFollow) != 0 ? kMountNoSymFollow : 0;
  Text<40> path;
  path.add("/proc/self/fd/").add_number(static_cast<std::uint64_t>(mount_fd));
  if (mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | flags, nullptr) != 0) {
    return -errno;
  }
  result = flags_of(mount_fd, present);
  return result < 0 ? result : (present & attributes) == attributes ? 0 : -EPERM;
}

bool id_of(int mount, std::uint64_t& id) {
  Text<40> path;
  path.add("/proc/self/fdinfo/").add_number(static_cast<std::uint64_t>(mount));
  char buffer[512];
  std::string_view text(buffer, read_proc(path.c_str(), buffer, sizeof buffer));
  constexpr std::string_view kKey = "mnt_id:\t";
  const std::size_t at = text.find(kKey);
  if (at == std::string_view::npos) {
    return false;
  }
  text.remove_prefix(at + kKey.size());
  return to_number(text.substr(0, text.find('\n')), id);
}

std::string_view take(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return taken;
}

// The list writes a blank and the like as a backslash with three octal digits.
void unescape(std::string_view text, Path& out) {
  while (!text.empty()) {
    char c = text[0];
    std::size_t used = 1;
    if (c == '\\' && text.size() >= 4) {
      c = static_cast<char>((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
      used = 4;
    }
    out.add({&c, 1});
    text.remove_prefix(used);
  }
}

// This process's list of mounts.
class MountList {
 public:
  ~MountList() {
    free(text_);
    free(found_);
  }

  int read() {
    int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0) {
      constexpr std::size_t kMore = 64U << 10;
      void* larger = realloc(text_, size_ + kMore);
      text_ = larger == nullptr ? text_ : static_cast<char*>(larger);
      got = larger == nullptr ? -1 : ::read(fd, text_ + size_, kMore);
      size_ += got > 0 ? static_cast<std::size_t>(got) : 0;
    }
    int result = got < 0 ? -errno : 0;
    if (fd >= 0) {
      close(fd);
    }
    return result;
  }

  // Calls `visit` with the id and the path, seen from there, of every mount below the mount `top`.
  template <typename Visit>
  int each_below(std::uint64_t top, Visit visit) {
    std::string_view base;
    if (!note(top)) {
      return -ENOMEM;
    }
    // A mount may be listed before its parent.
    for (bool more = true; more;) {
      more = false;
      std::string_view rest(text_, size_);
      while (!rest.empty()) {
        std::string_view line = take(rest, '\n');
        std::uint64_t id = 0;
        std::uint64_t parent = 0;
        if (!to_number(take(line, ' '), id) || !to_number(take(line, ' '), parent)) {
          return -EBADMSG;
        }
        take(line, ' ');
        take(line, ' ');
        std::string_view point = take(line, ' ');
        if (id == top) {
          more = more || base.empty();
          base = point;
        } else if (!base.empty() && is_noted(parent) && !is_noted(id)) {
          point.remove_prefix(point.size() < base.size() ? point.size() : base.size());
          int result = note(id) ? visit(id, point) : -ENOMEM;
          if (result < 0) {
            return result;
          }
          more = true;
        }
      }
    }
    return base.empty() ? -ENOENT : 0;
  }

 private:
  [[nodiscard]] bool is_noted(std::uint64_t id) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (found_[i] == id) {
        return true;
      }
    }
    return false;
  }

  bool note(std::uint64_t id) {
    void* larger = realloc(found_, (count_ + 1) * sizeof *found_);
    if (larger == nullptr) {
      return false;
    }
    found_ = static_cast<std::uint64_t*>(larger);
    found_[count_++] = id;
    return true;
  }

  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t* found_ = nullptr;
  std::size_t count_ = 0;
};

int remount_at(int top, std::uint64_t id, const char* path, std::uint64_t attributes) {
  int fd = open_beneath(top, path, O_PATH);
  if (fd < 0) {
    return fd;
  }
  // A mount that another one covers is out of everybody's reach; that one has its own turn.
  std::uint64_t reached = 0;
  int result = !id_of(fd, reached) ? -EIO : reached == id ? remount_one(fd, attributes) : 0;
  close(fd);
  return result;
}

int remount_below(int mount, std::uint64_t attributes) {
  std::uint64_t top = 0;
  MountList list;
  int result = id_of(mount, top) ? list.read() : -EIO;
  if (result < 0) {
    return result;
  }
  return list.each_below(top, [&](std::uint64_t id, std::string_view point) {
    Path path;
    unescape(point, path);
    // It begins with a slash, unless it covers the mount from which it would be reached.
    return path.view().size() < 2 ? -EBUSY : remount_at(mount, id, path.c_str() + 1, attributes);
  });
}

}  // namespace

int remount(int mount, std::uint64_t attributes, unsigned flags) {
  int result = remount_one(mount, attributes);
  return result < 0 || (flags & kAtRecursive) == 0 ? result : remount_below(mount, attributes);
}

}  // namespace carrel::guest
