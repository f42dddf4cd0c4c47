#include "storage/workspaces/layer_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/file_copy.h"
#include "base/files.h"
#include "base/open_below.h"
#include "base/sha256.h"
#include "storage/workspaces/attributes.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

namespace {

Error copy_error(const std::string& path) { return system_error("copy '" + path + "'"); }

// Of the last read and of the last write.
std::array<timespec, 2> both_times(std::int64_t ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec time{};
  time.tv_sec = static_cast<time_t>(ns / kSecond - (ns % kSecond < 0 ? 1 : 0));
  time.tv_nsec = static_cast<long>(ns - std::int64_t{time.tv_sec} * kSecond);
  return {time, time};
}

Result<ContentHash> hash_of(int file, int copy, const std::string& path) {
  struct stat info{};
  if (::fstat(file, &info) != 0) {
    return copy_error(path);
  }
  Sha256 hash;
  CARREL_TRY(copy_contents(file, copy, static_cast<std::uint64_t>(info.st_size), &hash, path));
  return hash.digest();
}

// CRITICAL: a page that the workload has mapped and written is on its way to the disk after this,
// and its next write through the mapping then changes the file's times again. Nobody waits for the
// disk.
void write_back(int file) {
  ::sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE);
}

// As root a workspace's files are not root's. An empty name is the directory or file itself.
Status give_to_workspace(int dir, const char* name, const std::string& path) {
  const int flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
  return ::geteuid() != 0 || ::fchownat(dir, name, kWorkspaceId, kWorkspaceId, flags) == 0
             ? Status{}
             : Status{copy_error(path)};
}

}  // namespace

Error no_room_for_layer() {
  return Error{Code::kResource, 0, "the snapshot takes more of the disk than is left for it",
               "remove snapshots, workspaces or sandboxes that are not needed"};
}

std::pair<std::string, std::string> split_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::pair(std::string(), path)
                                    : std::pair(path.substr(0, slash), path.substr(slash + 1));
}

Result<ContentHash> hash_synced(int root, const std::string& path) {
  CARREL_ASSIGN(const UniqueFd file, open_below(root, path, O_RDONLY | O_NONBLOCK));
  write_back(file.get());
  return hash_of(file.get(), -1, path);
}

Result<std::string> attributes_below(int root, const std::string& path) {
  CARREL_ASSIGN(const UniqueFd file, open_below(root, path, O_RDONLY | O_NONBLOCK));
  return read_attributes(file.get());
}

Result<HashedCopy> copy_hashed(int from, int to, const std::string& path) {
  const bool shared = share_contents(from, to);
  CARREL_ASSIGN(const ContentHash hash, hash_of(from, shared ? -1 : to, path));
  return HashedCopy{hash, shared ? Copied::kShared : Copied::kWritten};
}

Status set_times(int fd, std::int64_t mtime_ns, const std::string& path) {
  const std::array<timespec, 2> times = both_times(mtime_ns);
  return ::futimens(fd, times.data()) == 0 ? Status{} : Status{copy_error(path)};
}

Status set_times_at(int dir, const char* name, std::int64_t mtime_ns, const std::string& path) {
  const std::array<timespec, 2> times = both_times(mtime_ns);
  return ::utimensat(dir, name, times.data(), AT_SYMLINK_NOFOLLOW) == 0 ? Status{}
                                                                        : Status{copy_error(path)};
}

Status LayerWriter::count(const struct stat& info) {
  files_.count(static_cast<std::uint64_t>(info.st_blocks) * 512);
  return files_.taken() <= most_ ? Status{} : Status{no_room_for_layer()};
}

Status LayerWriter::count_at(int parent, const std::string& name) {
  struct stat info{};
  if (::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return copy_error(name);
  }
  return count(info);
}

Status LayerWriter::leave(std::size_t depth) {
  while (open_.size() > depth) {
    const Directory& last = open_.back();
    struct stat info{};
    if (::fstat(last.copy.get(), &info) != 0) {
      return copy_error(last.path);
    }
    CARREL_TRY(count(info));
    if (::fchmod(last.copy.get(), last.mode) != 0) {
      return copy_error(last.path);
    }
    CARREL_TRY(set_times(last.copy.get(), last.mtime_ns, last.path));
    files_.add_directory(std::move(open_.back().copy));
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
    CARREL_ASSIGN(const UniqueFd original, open_below(from_(next), next, O_RDONLY | O_DIRECTORY));
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

Status LayerWriter::add_sealed(ScannedEntry& entry) {
  if (entry.kind == EntryKind::kDirectory) {
    return add(entry);
  }
  const auto [directory, name] = split_path(entry.path);
  CARREL_ASSIGN(const int parent, enter(directory));
  CARREL_ASSIGN(const UniqueFd above,
                open_below(from_(entry.path), directory, O_PATH | O_DIRECTORY));
  // A file cannot have any number of names.
  return ::linkat(above.get(), name.c_str(), parent, name.c_str(), 0) == 0 ? count_at(parent, name)
                                                                           : add(entry);
}

Status LayerWriter::file(int parent, const std::string& name, ScannedEntry& entry) {
  CARREL_ASSIGN(const UniqueFd original,
                open_below(from_(entry.path), entry.path, O_RDONLY | O_NONBLOCK));
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
  if (!entry.target.empty() && ::linkat(to_, entry.target.c_str(), parent, name.c_str(), 0) == 0) {
    return {};
  }
  // What it takes now, its copy will take, about: much that is too much is not begun with.
  if (files_.taken() + static_cast<std::uint64_t>(info.st_blocks) * 512 / 2 > most_) {
    return no_room_for_layer();
  }
  CARREL_ASSIGN(UniqueFd copy, open_at(parent, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  CARREL_ASSIGN(const HashedCopy hashed, copy_hashed(original.get(), copy.get(), entry.path));
  entry.hash = hashed.hash;
  CARREL_TRY(give_to_workspace(copy.get(), "", entry.path));
  CARREL_TRY(write_attributes(copy.get(), entry.attributes, entry.path));
  if (::fchmod(copy.get(), entry.mode) != 0) {
    return copy_error(entry.path);
  }
  CARREL_TRY(set_times(copy.get(), entry.mtime_ns, entry.path));
  if (::fstat(copy.get(), &info) != 0) {
    return copy_error(entry.path);
  }
  CARREL_TRY(count(info));
  bytes_ += entry.size;
  if (hashed.copied == Copied::kShared) {
    files_.add_shared(std::move(copy));
  } else {
    files_.add_copied(std::move(copy));
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
  CARREL_TRY(count_at(parent, name));
  return give_to_workspace(parent, name.c_str(), entry.path);
}

Result<LayerFiles> LayerWriter::finish() {
  CARREL_TRY(leave(0));
  return std::move(files_);
}

}  // namespace carrel::storage
