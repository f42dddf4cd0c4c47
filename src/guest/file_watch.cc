#include <linux/magic.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/vfs.h>

#include <new>

#include "guest/file_tree.h"

namespace carrel::guest {

namespace {

using protocol::FileChange;
using protocol::FileEvent;
using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::FrameType;

constexpr std::size_t kMostWatched = 4096;  // directories
constexpr std::uint32_t kWanted = IN_CREATE | IN_CLOSE_WRITE | IN_MODIFY | IN_DELETE |
                                  IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW |
                                  IN_EXCL_UNLINK;
constexpr long kSysfsMagic = 0x62656572;
constexpr long kCgroupMagic = 0x27e0eb;
constexpr long kCgroup2Magic = 0x63677270;

// Changes there come from the kernel, which does not tell.
bool tells_changes(int fd) {
  struct statfs info{};
  return fstatfs(fd, &info) != 0 ||
         (info.f_type != PROC_SUPER_MAGIC && info.f_type != kSysfsMagic &&
          info.f_type != kCgroupMagic && info.f_type != kCgroup2Magic);
}

class Watcher {
 public:
  explicit Watcher(FileWork& work) : work_(work) {}

  FileOutcome run(int top) {
    top_ = top;
    inotify_ = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (inotify_ < 0) {
      return failed(-errno);
    }
    int result = add_tree({});
    if (result < 0) {
      return result == -ENOSPC ? problem(FileProblem::kTooMany, kMostWatched) : failed(result);
    }
    // From here on nothing is missed, and the host may know.
    struct stat info{};
    fstat(top_, &info);
    work_.channel.send_entry(entry_of(info, {}));
    for (;;) {
      if (!work_.channel.flush()) {
        return {};
      }
      struct pollfd waits[2] = {{inotify_, POLLIN, 0}, {work_.channel.input(), POLLIN, 0}};
      if (poll(waits, 2, -1) < 0 && errno != EINTR) {
        return failed(-errno);
      }
      if (waits[1].revents != 0) {
        return {};  // the host says something, or has left: enough
      }
      take_events();
      if (full_) {
        return problem(FileProblem::kTooMany, kMostWatched);
      }
    }
  }

  // Watches what is found on the way.
  Way visit(const TreeEntry& entry, std::string_view path) {
    if (entry.type != DT_DIR) {
      return Way::kPast;
    }
    error_ = add_one(path);
    return error_ == -ENOSPC ? Way::kStop : Way::kInto;
  }
  void leave(const TreeEntry& /*entry*/, std::string_view /*path*/) {}

 private:
  struct Watched {
    int number = -1;
    char* path = nullptr;  // below the top
  };

  int add_one(std::string_view path) {
    if (count_ >= kMostWatched) {
      return -ENOSPC;
    }
    // inotify takes a path: the kernel's own name of the directory that is meant.
    int fd = open_below(path);
    if (fd < 0) {
      return fd;
    }
    int number = fchdir(fd) != 0 ? -1 : inotify_add_watch(inotify_, ".", kWanted);
    int reason = -errno;
    close(fd);
    if (number < 0) {
      return reason;
    }
    for (std::size_t i = 0; i < count_; ++i) {
      if (watched_[i].number == number) {  // it was moved here
        free(watched_[i].path);
        watched_[i].path = strndup(path.data(), path.size());
        return 0;
      }
    }
    watched_[count_++] = {number, strndup(path.empty() ? "" : path.data(), path.size())};
    return 0;
  }

  // A directory below the top, through no link.
  [[nodiscard]] int open_below(std::string_view path) const {
    if (path.empty()) {
      return fcntl(top_, F_DUPFD_CLOEXEC, 3);
    }
    Path text;
    text.add(path);
    return walk_beneath(top_, text.c_str(), O_RDONLY | O_DIRECTORY);
  }

  int add_tree(std::string_view path) {
    int result = add_one(path);
    if (result < 0 || (work_.request.flags & protocol::kFileRecursive) == 0) {
      return result;
    }
    int fd = open_below(path);
    if (fd < 0) {
      return fd;
    }
    static TreePath at;
    at.cut(0);
    if (!path.empty()) {
      at.push(path);
    }
    std::size_t depth = 0;
    for (char c : path) {
      depth += c == '/' ? 1 : 0;
    }
    error_ = 0;
    walk_tree(work_, fd, at, depth, *this);
    return error_ == -ENOSPC ? error_ : 0;
  }

  void take_events() {
    alignas(struct inotify_event) static char buffer[64U << 10];
    for (;;) {
      ssize_t n = read(inotify_, buffer, sizeof buffer);
      if (n <= 0) {
        break;
      }
      for (ssize_t at = 0; at < n;) {
        struct inotify_event event{};
        memcpy(&event, buffer + at, sizeof event);
        take(event, buffer + at + sizeof event);
        at += static_cast<ssize_t>(sizeof event + event.len);
      }
    }
    flush_rename();
    last_written_.cut(0);
  }

  void take(const struct inotify_event& event, const char* name) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) {
      tell(FileEvent::kLost, event.mask, {}, {});
      return;
    }
    std::size_t index = 0;
    while (index < count_ && watched_[index].number != event.wd) {
      ++index;
    }
    if (index == count_) {
      return;
    }
    if ((event.mask & IN_IGNORED) != 0) {
      free(watched_[index].path);
      watched_[index] = watched_[--count_];
      return;
    }
    static TreePath path;
    path.cut(0);
    if ((watched_[index].path[0] != '\0' && !path.push(watched_[index].path)) || event.len == 0 ||
        !path.push(name)) {
      return;
    }
    if (cookie_ != 0 && event.cookie != cookie_) {
      flush_rename();
    }
    tell_one(event, path.view());
  }

  void tell_one(const struct inotify_event& event, std::string_view path) {
    if ((event.mask & IN_MOVED_FROM) != 0) {
      cookie_ = event.cookie;
      moved_mask_ = event.mask;
      moved_from_.cut(0);
      moved_from_.push(path);
      return;
    }
    if ((event.mask & IN_MOVED_TO) != 0 && cookie_ != 0) {
      tell(FileEvent::kRenamed, event.mask, moved_from_.view(), path);
      cookie_ = 0;
    } else if ((event.mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
      tell(FileEvent::kCreated, event.mask, path, {});
    } else if ((event.mask & IN_DELETE) != 0) {
      tell(FileEvent::kRemoved, event.mask, path, {});
    } else if (path != last_written_.view()) {  // one for a burst of them
      tell(FileEvent::kWritten, event.mask, path, {});
      last_written_.cut(0);
      last_written_.push(path);
      return;
    }
    last_written_.cut(0);
    if ((event.mask & IN_ISDIR) != 0 && (event.mask & (IN_CREATE | IN_MOVED_TO)) != 0 &&
        (work_.request.flags & protocol::kFileRecursive) != 0) {
      full_ = add_tree(path) == -ENOSPC;
      tell_contents(path);
    }
  }

  // What was made in a new directory before it was watched.
  void tell_contents(std::string_view path) {
    int fd = open_below(path);
    DIR* stream = fd < 0 ? nullptr : fdopendir(fd);
    if (stream == nullptr) {
      return;
    }
    static TreePath inside;
    while (const struct dirent* entry = readdir(stream)) {
      const std::string_view name = entry->d_name;
      inside.cut(0);
      if (name != "." && name != ".." && inside.push(path) && inside.push(name)) {
        tell(FileEvent::kCreated, entry->d_type == DT_DIR ? IN_ISDIR : 0, inside.view(), {});
      }
    }
    closedir(stream);
  }

  // The other half of it went elsewhere.
  void flush_rename() {
    if (cookie_ != 0) {
      tell(FileEvent::kRemoved, moved_mask_, moved_from_.view(), {});
      cookie_ = 0;
    }
  }

  void tell(FileEvent event, std::uint32_t mask, std::string_view path, std::string_view other) {
    unsigned char buffer[2 * protocol::kMaxPath + 64];
    protocol::Writer writer(buffer);
    const FileChange change{event, (mask & IN_ISDIR) != 0 ? std::uint8_t{1} : std::uint8_t{0}, path,
                            other};
    protocol::write_file_change(writer, change);
    work_.channel.send(FrameType::kFileChange,
                       {reinterpret_cast<const char*>(buffer), writer.size()});
  }

  FileWork& work_;
  int top_ = -1;
  int inotify_ = -1;
  int error_ = 0;
  bool full_ = false;
  std::uint32_t cookie_ = 0;
  std::uint32_t moved_mask_ = 0;
  TreePath moved_from_;
  TreePath last_written_;
  std::size_t count_ = 0;
  Watched watched_[kMostWatched];
};

}  // namespace

FileOutcome watch_files(FileWork& work) {
  int top = open_in_root(work.path.c_str(), O_RDONLY | O_DIRECTORY);
  if (top < 0) {
    return failed(top);
  }
  if (!tells_changes(top)) {
    close(top);
    return problem(FileProblem::kNotWatchable);
  }
  void* memory = malloc(sizeof(Watcher));
  if (memory == nullptr) {
    return failed(-ENOMEM);
  }
  return (new (memory) Watcher(work))->run(top);
}

}  // namespace carrel::guest
