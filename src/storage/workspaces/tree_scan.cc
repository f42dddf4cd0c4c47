#include "storage/workspaces/tree_scan.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::storage {

namespace {

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Error too_much(const std::string& what, const std::string& path) {
  return Error{Code::kResource, 0, "the workspace has " + what + " at '" + path + "'", {}};
}

bool is_opaque(int directory) {
  char value = '\0';
  return ::fgetxattr(directory, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

class Scanner {
 public:
  Scanner(TreeScan& scan, TreeForm form, dev_t device, const std::set<std::string>& without)
      : scan_(scan), form_(form), device_(device), without_(without) {}

  Status directory(int fd, const std::string& path, std::size_t depth) {
    if (depth > kMaxTreeDepth) {
      return too_much("more than " + std::to_string(kMaxTreeDepth) + " directories in each other",
                      path);
    }
    CARREL_ASSIGN(std::vector<std::string> names, list_directory(fd));
    std::string below = path.empty() ? path : path + "/";
    const std::size_t length = below.size();
    for (const std::string& name : names) {
      below.resize(length);
      below += name;
      if (below.size() > kMaxTreePath) {
        return too_much("a path of more than " + std::to_string(kMaxTreePath) + " bytes", below);
      }
      if (without_.empty() || !without_.contains(below)) {
        CARREL_TRY(entry(fd, name, below, depth));
      }
    }
    return {};
  }

 private:
  Status entry(int parent, const std::string& name, const std::string& path, std::size_t depth) {
    struct stat info{};
    if (::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      // Somebody who is not frozen removed it.
      return errno == ENOENT ? Status{} : Status{system_error("look at '" + path + "'")};
    }
    if (scan_.entries.size() >= kMaxTreeEntries) {
      return too_much("more than " + std::to_string(kMaxTreeEntries) + " files", path);
    }
    ScannedEntry found = describe(info);
    found.path = path;
    switch (info.st_mode & S_IFMT) {
      case S_IFREG:
        return file(std::move(found), info);
      case S_IFDIR:
        return subdirectory(parent, name, std::move(found), depth);
      case S_IFLNK:
        return link(parent, name, std::move(found));
      case S_IFIFO:
        scan_.entries.push_back(std::move(found));
        return {};
      case S_IFCHR:
        if (form_ == TreeForm::kUpper && info.st_rdev == makedev(0, 0)) {
          found.kind = EntryKind::kGone;
          scan_.entries.push_back(std::move(found));
          return {};
        }
        break;
      default:
        break;
    }
    ++scan_.left_out;
    return {};
  }

  Status file(ScannedEntry found, const struct stat& info) {
    if (info.st_nlink > 1) {
      auto [first, unknown] = linked_.try_emplace(info.st_ino, found.path);
      found.target = unknown ? "" : first->second;
    }
    if (found.target.empty()) {
      scan_.bytes += found.size;
    }
    if (scan_.bytes > kMaxTreeBytes) {
      return too_much("more than " + std::to_string(kMaxTreeBytes >> 30) + " GiB", found.path);
    }
    scan_.entries.push_back(std::move(found));
    return {};
  }

  Status subdirectory(int parent, const std::string& name, ScannedEntry found, std::size_t depth) {
    UniqueFd next(::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info{};
    if (!next.valid() || ::fstat(next.get(), &info) != 0) {
      return system_error("open '" + found.path + "'");
    }
    if (info.st_dev != device_) {
      ++scan_.left_out;
      return {};
    }
    found.opaque = form_ == TreeForm::kUpper && is_opaque(next.get());
    const std::string path = found.path;
    scan_.entries.push_back(std::move(found));
    return directory(next.get(), path, depth + 1);
  }

  Status link(int parent, const std::string& name, ScannedEntry found) {
    std::array<char, 4097> target{};
    const ssize_t n = ::readlinkat(parent, name.c_str(), target.data(), target.size());
    if (n < 0) {
      return system_error("read the link '" + found.path + "'");
    }
    found.target.assign(target.data(), static_cast<std::size_t>(n));
    scan_.entries.push_back(std::move(found));
    return {};
  }

  TreeScan& scan_;
  TreeForm form_;
  dev_t device_;
  const std::set<std::string>& without_;
  std::unordered_map<ino_t, std::string> linked_;  // files with several names: the first
};

}  // namespace

ScannedEntry describe(const struct stat& info) {
  ScannedEntry entry;
  entry.kind = S_ISDIR(info.st_mode)    ? EntryKind::kDirectory
               : S_ISLNK(info.st_mode)  ? EntryKind::kLink
               : S_ISFIFO(info.st_mode) ? EntryKind::kPipe
                                        : EntryKind::kFile;
  // A set-id bit of a file that the workload owns gives nobody anything, and is not kept.
  entry.mode = S_ISLNK(info.st_mode) ? 0777U : info.st_mode & 01777U;
  entry.size = S_ISREG(info.st_mode) ? static_cast<std::uint64_t>(info.st_size) : 0;
  entry.mtime_ns = nanoseconds(info.st_mtim);
  entry.evidence.inode = info.st_ino;
  entry.evidence.ctime_ns = nanoseconds(info.st_ctim);
  return entry;
}

Result<TreeScan> scan_tree(int root, TreeForm form, const ScanOptions& options) {
  struct stat info{};
  if (::fstat(root, &info) != 0) {
    return system_error("look at the workspace");
  }
  TreeScan scan;
  scan.entries.reserve(options.expected + options.expected / 8);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  scan.began_ns = nanoseconds(now);
  CARREL_TRY(Scanner(scan, form, info.st_dev, options.without).directory(root, "", 0));
  return scan;
}

}  // namespace carrel::storage
