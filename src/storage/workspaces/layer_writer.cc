#include "storage/workspaces/layer_writer.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/files.h"
#include "storage/workspaces/attributes.h"
#include "base/sha256.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kPiece = 256 << 10;
// With more files than this it is quicker to have the whole file system synced.
constexpr std::uint64_t kManyFiles = 128;

Error copy_error(const std::string& path) { return system_error("copy '" + path + "'"); }

bool is_zero(std::string_view piece) {
  return piece[0] == '\0' && piece.substr(1) == piece.substr(0, piece.size() - 1);
}

// Of the last read and of the last write.
std::array<timespec, 2> both_times(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec time{};
  time.tv_sec = static_cast<time_t>(ns / kSecond - (ns % kSecond < 0 ? 1 : 0));
  time.tv_nsec = static_cast<long>(ns - std::int64_t{time.tv_sec} * kSecond);
  return {time, time};
}

// Where `to` may be a hole it becomes one.
Result<ContentHash> read_through(int from, int to, const std::string& path) {
  Sha256 hash;
  std::string buffer(kPiece, '\0');
  off_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(from, buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return copy_error(path);
    }
    if (n == 0) {
      break;
    }
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(n));
    hash.update(piece);
    if (to >= 0 && !is_zero(piece)) {
      if (::lseek(to, at, SEEK_SET) < 0) {
        return copy_error(path);
      }
      if (Status written = write_all(to, piece); !written.ok()) {
        written.error().message = "copy '" + path + "'";
        return written.error();
      }
    }
    at += n;
  }
  if (to >= 0 && ::ftruncate(to, at) != 0) {
    return copy_error(path);
  }
  return hash.digest();
}

// CRITICAL: a page that the workload has mapped and written is on its way to the disk after this, and
// its next write through the mapping then changes the file's times again. Nobody waits for the disk.
void write_back(int file) {
  ::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE);
}

// On ext4 one sync brings everything to the disk that was done to names and inodes before it.
bool syncs_together(int directory) {
  struct statfs info{};
  return ::fstatfs(directory, &info) == 0 && info.f_type == EXT4_SUPER_MAGIC;
}

// As root a workspace's files are not root's. An empty name is the directory or file itself.
Status give_to_workspace(int dir, const char* name, const std::string& path) {
  const int flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
  return ::geteuid() != 0 || ::fchownat(dir, name, kWorkspaceId, kWorkspaceId, flags) == 0
             ? Status{}
             : Status{copy_error(path)};
}

}  // namespace

std::pair<std::string, std::string> split_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::pair(std::string(), path)
                                    : std::pair(path.substr(0, slash), path.substr(slash + 1));
}

Result<UniqueFd> open_below(int root, const std::string& path, int flags) {
  struct open_how how{};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  const std::string name = path.empty() ? "." : path;
  UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, root, name.c_str(), &how, sizeof how)));
  if (!fd.valid()) {
    return system_error("open '" + path + "'");
  }
  return fd;
}

Result<ContentHash> hash_synced(int root, const std::string& path) {
  CARREL_ASSIGN(const UniqueFd file, open_below(root, path, O_RDONLY | O_NONBLOCK));
  write_back(file.get());
  return read_through(file.get(), -1, path);
}

Result<std::string> attributes_below(int root, const std::string& path) {
  CARREL_ASSIGN(const UniqueFd file, open_below(root, path, O_RDONLY | O_NONBLOCK));
  return read_attributes(file.get());
}

Result<ContentHash> copy_hashed(int from, int to, const std::string& path) {
  const bool shared = ::ioctl(to, FICLONE, from) == 0;
  return read_through(from, shared ? -1 : to, path);
}

Status set_times(int fd, std::int64_t mtime_ns, const std::string& path) {
  const std::array<timespec, 2> times = both_times(mtime_ns);
  return ::futimens(fd, times.data()) == 0 ? Status{} : Status{copy_error(path)};
}

Status set_times_at(int dir, const char* name, std::int64_t mtime_ns, const std::string& path) {
  const std::array<timespec, 2> times = both_times(mtime_ns);
  return ::utimensat(dir, name, times.data(), AT_SYMLINK_NOFOLLOW) == 0
             ? Status{}
             : Status{copy_error(path)};
}

Status LayerWriter::leave(std::size_t depth) {
  while (open_.size() > depth) {
    const Directory& last = open_.back();
    if (::fchmod(last.copy.get(), last.mode) != 0) {
      return copy_error(last.path);
    }
    CARREL_TRY(set_times(last.copy.get(), last.mtime_ns, last.path));
    unsynced_.push_back(std::move(open_.back().copy));
    open_.pop_back();
  }
  return {};
}

// The directory of the layer at `path`, made with those above it as far as they are missing.
Result<int> LayerWriter::enter(std::string_view path) {
  std::size_t depth = 0;
  while (depth < open_.size() && lies_in(path, open_[depth].path)) {
    ++depth;
  }
  CARREL_TRY(leave(depth));
  while (open_.empty() ? !path.empty() : open_.back().path != path) {
    const std::size_t known = open_.empty() ? 0 : open_.back().path.size() + 1;
    const std::string next(path.substr(0, path.find('/', known)));
    const std::string name = next.substr(known);
    const int parent = open_.empty() ? to_ : open_.back().copy.get();
    CARREL_ASSIGN(const UniqueFd original, open_below(from_, next, O_RDONLY | O_DIRECTORY));
    struct stat info{};
    if (::fstat(original.get(), &info) != 0 ||
        (::mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST)) {
      return copy_error(next);
    }
    CARREL_ASSIGN(UniqueFd copy, open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    CARREL_TRY(give_to_workspace(copy.get(), "", next));
    CARREL_TRY(write_attributes(copy.get(), read_attributes(original.get()), next));
    const ScannedEntry found = describe(info);
    open_.push_back({next, std::move(copy), found.mode, found.mtime_ns});
  }
  return open_.empty() ? to_ : open_.back().copy.get();
}

Status LayerWriter::add(ScannedEntry& entry) {
  if (entry.kind == EntryKind::kDirectory) {
    CARREL_ASSIGN(const int copy, enter(entry.path));
    if (entry.opaque && ::fsetxattr(copy, "user.overlay.opaque", "y", 1, 0) != 0) {
      return copy_error(entry.path);
    }
    entry.attributes = read_attributes(copy);
    return {};
  }
  const auto [directory, name] = split_path(entry.path);
  CARREL_ASSIGN(const int parent, enter(directory));
  return entry.kind == EntryKind::kFile ? file(parent, name, entry) : other(parent, name, entry);
}

Status LayerWriter::file(int parent, const std::string& name, ScannedEntry& entry) {
  CARREL_ASSIGN(const UniqueFd original, open_below(from_, entry.path, O_RDONLY | O_NONBLOCK));
  write_back(original.get());
  struct stat info{};
  if (::fstat(original.get(), &info) != 0) {
    return copy_error(entry.path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error{Code::kConflict, 0, "'" + entry.path + "' changed while it was read", {}};
  }
  const ScannedEntry found = describe(info);
  entry.mode = found.mode;
  entry.size = found.size;
  entry.mtime_ns = found.mtime_ns;
  entry.evidence = found.evidence;
  entry.attributes = read_attributes(original.get());
  if (!entry.target.empty() &&
      ::linkat(to_, entry.target.c_str(), parent, name.c_str(), 0) == 0) {
    return {};
  }
  CARREL_ASSIGN(UniqueFd copy,
                open_at(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  CARREL_ASSIGN(entry.hash, copy_hashed(original.get(), copy.get(), entry.path));
  CARREL_TRY(give_to_workspace(copy.get(), "", entry.path));
  CARREL_TRY(write_attributes(copy.get(), entry.attributes, entry.path));
  if (::fchmod(copy.get(), entry.mode) != 0) {
    return copy_error(entry.path);
  }
  CARREL_TRY(set_times(copy.get(), entry.mtime_ns, entry.path));
  bytes_ += entry.size;
  write_back(copy.get());  // so that the disk works while the next one is copied
  if (++files_ <= kManyFiles) {
    unsynced_.push_back(std::move(copy));
  }
  return {};
}

Status LayerWriter::other(int parent, const std::string& name, const ScannedEntry& entry) {
  int made = -1;
  if (entry.kind == EntryKind::kLink) {
    made = ::symlinkat(entry.target.c_str(), parent, name.c_str());
  } else if (entry.kind == EntryKind::kPipe) {
    made = ::mknodat(parent, name.c_str(), S_IFIFO | entry.mode, 0);
  } else {
    made = ::mknodat(parent, name.c_str(), S_IFCHR, makedev(0, 0));
  }
  if (made != 0) {
    return copy_error(entry.path);
  }
  return give_to_workspace(parent, name.c_str(), entry.path);
}

Status LayerWriter::finish() {
  CARREL_TRY(leave(0));
  if (files_ > kManyFiles || unsynced_.size() > 2 * kManyFiles) {
    unsynced_.clear();
    return ::syncfs(to_) == 0 ? Status{} : Status{system_error("sync the layer")};
  }
  const bool together = syncs_together(to_);
  for (const UniqueFd& fd : unsynced_) {
    const unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                         SYNC_FILE_RANGE_WAIT_AFTER;
    const int synced = together ? ::sync_file_range(fd.get(), 0, 0, all) : ::fsync(fd.get());
    if (synced != 0 && !(together && errno == ESPIPE)) {  // a directory
      return system_error("sync the layer");
    }
  }
  unsynced_.clear();
  return ::fsync(to_) == 0 ? Status{} : Status{system_error("sync the layer")};
}

}  // namespace carrel::storage
