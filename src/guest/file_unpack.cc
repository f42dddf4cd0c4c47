#include "guest/file_tree.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::FileEntry;
using protocol::FileKind;
using protocol::FileOutcome;
using protocol::FileProblem;
using protocol::FrameType;

constexpr unsigned kModeBits = 01777;  // no set-id

void split(std::string_view path, std::string_view& parent, std::string_view& name) {
  const std::size_t slash = path.rfind('/');
  parent = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  name = part(path, slash + 1);
}

// Writes a tree below one directory, whatever the names in it say: a path goes from directory to
// directory, by descriptor, and through no link, whoever made it.
class Unpacker {
 public:
  Unpacker(FileWork& work, int top) : work_(work), top_(top) {}
  ~Unpacker() {
    finish_file();
    forget_parent();
    close(top_);
  }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // The next entry; what cannot be made is noted, and its contents are skipped.
  void begin(const FileEntry& entry) {
    finish_file();
    left_ = entry.kind == FileKind::kFile ? entry.size : 0;  // comes, whatever becomes of it
    ++outcome_.entries;
    std::string_view above;
    std::string_view name;
    split(entry.path, above, name);
    int parent = entry.path.empty() ? top_ : open_parent(above);
    int result = parent < 0 ? parent : make(entry, parent, name);
    if (result < 0) {
      --outcome_.entries;
      left_out(result, entry.path);
    }
  }

  // False when they are not announced: then nobody speaks this protocol.
  bool contents(std::string_view data) {
    if (!expects(data.size())) {
      return false;
    }
    if (file_ >= 0 && error_ == 0 && !write_whole(file_, data)) {
      error_ = -errno;
    }
    outcome_.bytes += data.size();
    return true;
  }
  bool hole(std::uint64_t size) {
    if (!expects(size)) {
      return false;
    }
    if (file_ >= 0 && error_ == 0 &&
        (lseek(file_, static_cast<off_t>(size), SEEK_CUR) < 0 ||
         ftruncate(file_, lseek(file_, 0, SEEK_CUR)) != 0)) {
      error_ = -errno;
    }
    return true;
  }

  // What was not sent whole is not kept.
  void finish_file() {
    const bool whole = left_ == 0;
    left_ = 0;
    if (file_ < 0) {
      return;
    }
    int result = error_ == 0 && !whole ? -ESTALE : error_;
    if (result == 0) {
      set_modified(file_, modified_ns_);
    }
    if (file_ == replacement_.descriptor()) {
      result = result < 0 ? result : replacement_.commit(NewFile::Over::kAnything);
      replacement_.abandon();
    } else {
      close(file_);
      if (result < 0) {
        unlinkat(file_parent_, name_.c_str(), 0);
      }
    }
    file_ = -1;
    error_ = 0;
    if (result < 0) {
      left_out(result, entry_path_.view());
    }
  }

  [[nodiscard]] int last_error() const { return last_; }
  [[nodiscard]] const FileOutcome& outcome() const { return outcome_; }

 private:
  void left_out(int error, std::string_view path) {
    last_ = error;
    note(work_, failed(error), path);
  }

  bool expects(std::uint64_t size) {
    if (size > left_) {
      return false;
    }
    left_ -= size;
    return true;
  }

  int make(const FileEntry& entry, int parent, std::string_view name) {
    Text<260> one;
    one.add(name);
    if (name.size() > 255) {
      return -ENAMETOOLONG;
    }
    switch (entry.kind) {
      case FileKind::kDirectory:
        return make_directory_at(entry, parent, one.c_str());
      case FileKind::kDirectoryEnd:
        return finish_directory(entry, parent, one.c_str());
      case FileKind::kFile:
        return entry.path.empty() ? -EISDIR : begin_file(entry, parent, name);
      case FileKind::kLink:
        return entry.path.empty() ? -EISDIR : make_link(entry, parent, one.c_str());
      case FileKind::kHardLink:
        return entry.path.empty() ? -EISDIR : make_hard_link(entry, one.c_str());
      case FileKind::kOther:
        break;
    }
    return -ENXIO;
  }

  static int make_directory_at(const FileEntry& entry, int parent, const char* name) {
    if (entry.path.empty()) {
      return 0;
    }
    if (mkdirat(parent, name, (entry.mode & kModeBits) | 0700) == 0) {
      return 0;
    }
    struct stat info{};
    if (errno != EEXIST || fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return -errno;
    }
    return S_ISDIR(info.st_mode) ? 0 : -EXDEV;
  }

  int finish_directory(const FileEntry& entry, int parent, const char* name) {
    --outcome_.entries;
    if (entry.path.empty()) {
      return 0;
    }
    int fd = open_directory(parent, name);
    if (fd < 0) {
      return -errno;
    }
    int result = fchmod(fd, entry.mode & kModeBits) != 0 ? -errno : 0;
    set_modified(fd, entry.modified_ns);
    close(fd);
    return result;
  }

  int begin_file(const FileEntry& entry, int parent, std::string_view name) {
    file_parent_ = parent;
    name_ = {};
    name_.add(name);
    entry_path_ = {};
    entry_path_.add(entry.path);
    modified_ns_ = entry.modified_ns;
    const unsigned mode = entry.mode & kModeBits;
    file_ =
        openat(parent, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (file_ >= 0 || errno != EEXIST) {
      return file_ < 0 ? -errno : 0;
    }
    struct stat info{};
    if (fstatat(parent, name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) {
      return -EISDIR;
    }
    int result = replacement_.begin(parent, name_.c_str(), mode);
    file_ = replacement_.descriptor();
    return result;
  }

  static int make_link(const FileEntry& entry, int parent, const char* name) {
    Path target;
    target.add(entry.target);
    if (symlinkat(target.c_str(), parent, name) == 0) {
      return 0;
    }
    if (errno != EEXIST || unlinkat(parent, name, 0) != 0 ||
        symlinkat(target.c_str(), parent, name) != 0) {
      return -errno;
    }
    return 0;
  }

  int make_hard_link(const FileEntry& entry, const char* name) {
    int kept = fcntl(parent_ < 0 ? top_ : parent_, F_DUPFD_CLOEXEC, 3);
    std::string_view above;
    std::string_view target;
    split(entry.target, above, target);
    Text<260> from;
    from.add(target);
    int directory = open_parent(above);
    struct stat info{};
    int result = directory < 0 ? directory : 0;
    if (result == 0 && (fstatat(directory, from.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
                        !S_ISREG(info.st_mode))) {
      result = -EXDEV;  // only a file of this tree
    }
    if (result == 0) {
      unlinkat(kept, name, 0);
      result = linkat(directory, from.c_str(), kept, name, 0) != 0 ? -errno : 0;
    }
    close(kept);
    return result;
  }

  // The directory of that path below the top, made if it is absent. Kept for the next entry.
  int open_parent(std::string_view path) {
    if (path.empty()) {
      forget_parent();
      return top_;
    }
    if (parent_ >= 0 && parent_path_.view() == path) {
      return parent_;
    }
    forget_parent();
    int at = top_;
    for (std::string_view rest = path; !rest.empty();) {
      const std::size_t slash = rest.find('/');
      Text<260> name;
      name.add(rest.substr(0, slash));
      rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
      int next = open_directory(at, name.c_str());
      if (next < 0 && errno == ENOENT && mkdirat(at, name.c_str(), 0755) == 0) {
        next = open_directory(at, name.c_str());
      }
      int reason = errno;
      if (at != top_) {
        close(at);
      }
      if (next < 0) {
        return reason == ENOTDIR || reason == ELOOP ? -EXDEV : -reason;
      }
      at = next;
    }
    parent_ = at;
    parent_path_ = {};
    parent_path_.add(path);
    return parent_;
  }

  void forget_parent() {
    if (parent_ >= 0) {
      close(parent_);
    }
    parent_ = -1;
  }

  FileWork& work_;
  int top_;
  int parent_ = -1;
  Path parent_path_;
  int file_ = -1;
  int file_parent_ = -1;  // one of the two above
  int error_ = 0;
  int last_ = 0;
  std::uint64_t left_ = 0;
  std::uint64_t modified_ns_ = 0;
  Text<260> name_;
  Path entry_path_;
  NewFile replacement_;
  FileOutcome outcome_;
};

// The whole disk being full is not a matter of one entry.
bool is_hopeless(int error) { return error == -ENOSPC || error == -EDQUOT || error == -EROFS; }

}  // namespace

FileOutcome unpack_tree(FileWork& work) {
  int place = make_directories(work.path, 0755);
  int top = place < 0 ? place : open_directory(place, ".");
  if (place >= 0) {
    top = top < 0 ? -errno : top;
    close(place);
  }
  if (top < 0) {
    return failed(top);
  }
  Unpacker unpacker(work, top);
  protocol::FrameHeader header;
  std::string_view payload;
  while (work.channel.next(header, payload)) {
    FileEntry entry;
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
    switch (header.type) {
      case FrameType::kFileEntry:
        if (!protocol::parse_file_entry(payload, entry)) {
          return failed(-EBADMSG);
        }
        unpacker.begin(entry);
        break;
      case FrameType::kFileData:
        if (!unpacker.contents(payload)) {
          return failed(-EBADMSG);
        }
        break;
      case FrameType::kFileHole:
        if (const std::uint64_t size = reader.u64(); !reader.finished() || !unpacker.hole(size)) {
          return failed(-EBADMSG);
        }
        break;
      case FrameType::kFileEnd:
        unpacker.finish_file();
        return unpacker.outcome();
      default:
        return failed(-EBADMSG);
    }
    if (is_hopeless(unpacker.last_error())) {
      return failed(unpacker.last_error());
    }
  }
  return failed(-EPIPE);
}

}  // namespace carrel::guest
