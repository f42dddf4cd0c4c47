#include "guest/file_place.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "protocol/files.h"

namespace carrel::guest {

namespace {

constexpr int kDirectory = O_PATH | O_DIRECTORY | O_CLOEXEC;
constexpr int kMostLinks = 40;
constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE, which not every C library names

int root() {
  static int fd = open("/", kDirectory);
  return fd;
}

// Splits "/a/b" into "/a" and "b". Trailing slashes do not count.
void split(std::string_view path, std::string_view& parent, std::string_view& name) {
  while (path.size() > 1 && path.back() == '/') {
    path.remove_suffix(1);
  }
  const std::size_t slash = path.rfind('/');
  name = part(path, slash + 1);
  parent = slash == 0 ? path.substr(0, 1) : path.substr(0, slash);
}

bool is_proc(int fd) {
  struct statfs info{};
  return fstatfs(fd, &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

int check_regular(int fd, struct stat& info) {
  if (fd < 0) {
    return fd;
  }
  int refusal = 0;
  if (fstat(fd, &info) != 0) {
    refusal = -errno;
  } else if (S_ISDIR(info.st_mode)) {
    refusal = -EISDIR;
  } else if (!S_ISREG(info.st_mode)) {
    refusal = -ENXIO;
  }
  if (refusal != 0) {
    close(fd);
    return refusal;
  }
  return fd;
}

constexpr int kReading = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

}  // namespace

Place::~Place() {
  if (parent >= 0) {
    close(parent);
  }
}

int absolute_path(std::string_view workdir, std::string_view path, Path& out) {
  if (protocol::climbs(path)) {
    return -EXDEV;
  }
  const bool relative = path.front() != '/';
  if (path.size() + (relative ? workdir.size() + 1 : 0) > protocol::kMaxPath) {
    return -ENAMETOOLONG;
  }
  if (relative) {
    out.add(workdir).add("/");
  }
  out.add(path);
  return 0;
}

int open_in_root(const char* path, int flags) {
  struct open_how how{};
  how.flags = static_cast<unsigned>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  long fd = syscall(SYS_openat2, root(), path, &how, sizeof how);
  if (fd >= 0 || errno != ENOSYS) {
    return fd < 0 ? -errno : static_cast<int>(fd);
  }
  Path plain;  // the walk takes one name after the other
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(name.size() < rest.size() ? name.size() + 1 : name.size());
    if (!name.empty()) {
      plain.add(plain.view().empty() ? "" : "/").add(name);
    }
  }
  return plain.view().empty() ? open("/", flags | O_CLOEXEC)
                              : walk_beneath(root(), plain.c_str(), flags);
}

int open_regular(const char* path, struct stat& info) {
  return check_regular(open_in_root(path, kReading), info);
}

int open_regular_at(int directory, const char* name, struct stat& info) {
  int fd = openat(directory, name, kReading | O_NOFOLLOW);
  return check_regular(fd < 0 ? -errno : fd, info);
}

int make_directories(const Path& path, unsigned mode) {
  int at = open_in_root(path.c_str(), kDirectory);
  if (at != -ENOENT) {
    return at;
  }
  // The longest part that is there, then the rest name by name.
  std::string_view rest = path.view();
  Path there;
  at = open_in_root("/", kDirectory);
  while (at >= 0 && !rest.empty()) {
    const std::size_t slash = rest.find('/');
    std::string_view name = rest.substr(0, slash);
    rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    if (name.empty() || name == ".") {
      continue;
    }
    there.add("/").add(name);
    int next = open_in_root(there.c_str(), kDirectory);
    if (next == -ENOENT) {
      Text<260> one;
      one.add(name);
      next = mkdirat(at, one.c_str(), rest.empty() ? mode : 0755) != 0 && errno != EEXIST
                 ? -errno
                 : open_in_root(there.c_str(), kDirectory);
    }
    close(at);
    at = next;
  }
  return at;
}

int find_place(const Path& path, Parents parents, Place& place) {
  std::string_view above;
  std::string_view name;
  split(path.view(), above, name);
  if (name.empty() || name == ".") {
    return -EBUSY;
  }
  if (name.size() > 255) {
    return -ENAMETOOLONG;
  }
  Path directory;
  directory.add(above);
  int fd = parents == Parents::kMake ? make_directories(directory, 0755)
                                     : open_in_root(directory.c_str(), kDirectory);
  if (fd < 0) {
    return fd;
  }
  if (place.parent >= 0) {
    close(place.parent);
  }
  place.parent = fd;
  place.name = Text<256>();
  place.name.add(name);
  return 0;
}

int find_target(const Path& path, Parents parents, Place& place) {
  Path at = path;
  for (int links = 0; links < kMostLinks; ++links) {
    int result = find_place(at, parents, place);
    if (result < 0) {
      return result;
    }
    char target[protocol::kMaxPath];
    ssize_t size = readlinkat(place.parent, place.name.c_str(), target, sizeof target);
    if (size < 0) {
      return errno == EINVAL || errno == ENOENT ? 0 : -errno;
    }
    if (is_proc(place.parent)) {  // its text is not where it leads
      return -ELOOP;
    }
    std::string_view text(target, static_cast<std::size_t>(size));
    std::string_view above;
    std::string_view name;
    split(at.view(), above, name);
    Path next;
    if (text.empty() || text.size() + above.size() + 2 > protocol::kMaxPath) {
      return -ENAMETOOLONG;
    }
    if (text.front() != '/') {
      next.add(above).add("/");
    }
    at = next.add(text);
  }
  return -ELOOP;
}

int NewFile::begin(int parent, const char* name, unsigned mode) {
  parent_ = parent;
  name_ = name;
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) < 0) {
      return -errno;
    }
    temporary_ = Text<64>();
    temporary_.add(".carrel-").add_number(number).add(".new");
    fd_ = openat(parent, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                 mode);
    if (fd_ >= 0 || errno != EEXIST) {
      break;
    }
  }
  return fd_ < 0 ? -errno : 0;
}

int NewFile::commit(Over over) {
  int done = over == Over::kAnything
                 ? renameat(parent_, temporary_.c_str(), parent_, name_)
                 : static_cast<int>(syscall(SYS_renameat2, parent_, temporary_.c_str(), parent_,
                                            name_, kNoReplace));
  if (done != 0 && over == Over::kNothing && errno == EINVAL) {  // not on every file system
    done = linkat(parent_, temporary_.c_str(), parent_, name_, 0);
    if (done == 0) {
      unlinkat(parent_, temporary_.c_str(), 0);
    }
  }
  if (done != 0) {
    return -errno;
  }
  close(fd_);
  fd_ = -1;
  return 0;
}

void NewFile::abandon() {
  if (fd_ >= 0) {
    unlinkat(parent_, temporary_.c_str(), 0);
    close(fd_);
    fd_ = -1;
  }
}

void set_modified(int fd, std::uint64_t modified_ns) {
  if (modified_ns == 0) {
    return;
  }
  struct timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(modified_ns / 1'000'000'000);
  times[1].tv_nsec = static_cast<long>(modified_ns % 1'000'000'000);
  futimens(fd, times);
}

}  // namespace carrel::guest
