#include "sandbox/tree_from_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/files.h"

namespace carrel::sandbox {

namespace {

using protocol::FileEntry;
using protocol::FileKind;

constexpr unsigned kModeBits = 01777;

FileEntry entry_of(const struct stat& info, FileKind kind, std::string_view path) {
  FileEntry entry;
  entry.kind = kind;
  entry.mode = static_cast<std::uint32_t>(info.st_mode & kModeBits);
  entry.size = kind == FileKind::kFile ? static_cast<std::uint64_t>(info.st_size) : 0;
  if (info.st_mtim.tv_sec > 0) {
    entry.modified_ns = static_cast<std::uint64_t>(info.st_mtim.tv_sec) * 1'000'000'000 +
                        static_cast<std::uint64_t>(info.st_mtim.tv_nsec);
  }
  entry.path = path;
  return entry;
}

class TreeFeeder {
 public:
  TreeFeeder(TreeFeed& feed, std::vector<LeftOutFile>& left_out, const Progress& progress)
      : feed_(feed), left_out_(left_out), progress_(progress) {}

  // Everything in a directory, whose path below the top ends in a slash or is empty.
  Status directory(int fd, const std::string& path) {
    CARREL_ASSIGN(DirectoryEntries entries, DirectoryEntries::open_at(fd, "."));
    while (const dirent* found = entries.next()) {
      const std::string name = found->d_name;
      const std::string below = path + name;
      if (!protocol::is_tree_path(below)) {
        leave_out(below, "is too deep or too long");
        continue;
      }
      CARREL_TRY(entry(entries.descriptor(), name, below, found->d_type));
    }
    return entries.failure();
  }

 private:
  Status entry(int parent, const std::string& name, const std::string& path, unsigned char type) {
    struct stat info{};
    if (type == DT_REG) {  // what most are: opened first, looked at then
      return file(parent, name, path);
    }
    if (::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      leave_out(path, std::strerror(errno));
      return {};
    }
    if (S_ISDIR(info.st_mode)) {
      return subdirectory(parent, name, path);
    }
    if (S_ISREG(info.st_mode)) {
      return file(parent, name, path);
    }
    if (S_ISLNK(info.st_mode)) {
      return link(parent, name, path, info);
    }
    leave_out(path, "is a pipe, a socket or a device", true);
    return {};
  }

  Status subdirectory(int parent, const std::string& name, const std::string& path) {
    UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info{};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
      leave_out(path, std::strerror(errno));
      return {};
    }
    CARREL_TRY(feed_.entry(entry_of(info, FileKind::kDirectory, path)));
    tell(0, 1);
    CARREL_TRY(directory(fd.get(), path + "/"));
    return feed_.entry(entry_of(info, FileKind::kDirectoryEnd, path));
  }

  Status link(int parent, const std::string& name, const std::string& path,
              const struct stat& info) {
    std::array<char, protocol::kMaxPath> target{};
    const ssize_t n = ::readlinkat(parent, name.c_str(), target.data(), target.size());
    if (n <= 0) {
      leave_out(path, std::strerror(errno));
      return {};
    }
    FileEntry row = entry_of(info, FileKind::kLink, path);
    row.target = {target.data(), static_cast<std::size_t>(n)};
    tell(0, 1);
    return feed_.entry(row);
  }

  Status file(int parent, const std::string& name, const std::string& path) {
    UniqueFd fd(::openat(parent, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info{};
    if (!fd.valid() || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      leave_out(path, std::strerror(fd.valid() ? ESTALE : errno));
      return {};
    }
    CARREL_TRY(feed_.entry(entry_of(info, FileKind::kFile, path)));
    tell(0, 1);
    return contents(fd.get(), info, path);
  }

  // As many bytes as were announced. A file that became shorter is left out inside, too.
  Status contents(int fd, const struct stat& info, const std::string& path) {
    const off_t size = info.st_size;
    const bool sparse = info.st_blocks * 512 < size && size > (1 << 16);
    off_t data_end = sparse ? 0 : size;
    for (off_t at = 0; at < size;) {
      if (at == data_end) {
        off_t data = ::lseek(fd, at, SEEK_DATA);
        data = data < 0 ? (errno == ENXIO ? size : at) : std::min(data, size);
        if (data > at) {
          CARREL_TRY(feed_.hole(static_cast<std::uint64_t>(data - at)));
          at = data;
        }
        const off_t hole = ::lseek(fd, at, SEEK_HOLE);
        data_end = hole <= at ? size : std::min(hole, size);
        continue;
      }
      CARREL_ASSIGN(char* place, feed_.place());
      const std::size_t wanted =
          std::min<std::size_t>(protocol::kFilePiece, static_cast<std::size_t>(data_end - at));
      const ssize_t n = ::pread(fd, place, wanted, at);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        leave_out(path, n < 0 ? std::strerror(errno) : "became shorter while it was read");
        return {};
      }
      feed_.placed(static_cast<std::size_t>(n));
      tell(static_cast<std::uint64_t>(n), 0);
      at += n;
    }
    return {};
  }

  void leave_out(const std::string& path, const std::string& reason, bool special = false) {
    left_out_.push_back({path, reason, special});
  }

  void tell(std::uint64_t bytes, std::uint64_t entries) {
    bytes_ += bytes;
    entries_ += entries;
    if (progress_) {
      progress_(bytes_, entries_);
    }
  }

  TreeFeed& feed_;
  std::vector<LeftOutFile>& left_out_;
  const Progress& progress_;
  std::uint64_t bytes_ = 0;
  std::uint64_t entries_ = 0;
};

}  // namespace

Status feed_host_tree(int directory, TreeFeed& feed, std::vector<LeftOutFile>& left_out,
                      const Progress& progress) {
  return TreeFeeder(feed, left_out, progress).directory(directory, "");
}

Files::Source source_of(int fd, const Progress& progress) {
  return [fd, &progress, total = std::uint64_t{0}](
             char* place, std::size_t size) mutable -> Result<std::size_t> {
    for (;;) {
      const ssize_t n = ::read(fd, place, size);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n < 0) {
        return system_error("read what is to be written");
      }
      total += static_cast<std::uint64_t>(n);
      if (progress) {
        progress(total, 1);
      }
      return static_cast<std::size_t>(n);
    }
  };
}

}  // namespace carrel::sandbox
