#include "storage/mount_walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string_view>

#include "base/files.h"

namespace carrel::storage {

namespace {

using policy::Examined;
using policy::FileId;
using policy::FileKind;
using policy::Noticed;

constexpr std::size_t kMostForbiddenEntries = 2'000'000;
constexpr std::size_t kDeepestForbidden = 128;
constexpr std::array<std::string_view, 6> kNotSearched = {
    "/proc", "/sys", "/dev", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet",
};

// Stores of public files, from which package managers and profilers link to everywhere.
constexpr std::array<std::string_view, 7> kCaches = {
    ".cache", ".debug", ".npm", ".pnpm-store", "pnpm", ".bun", ".rustup",
};

struct CloseDir {
  void operator()(DIR* dir) const { ::closedir(dir); }
};
using Folder = std::unique_ptr<DIR, CloseDir>;

// A folder by its name in another; errno is set if there is none.
Folder open_folder(int parent, const char* name) {
  const int fd =
      ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    return nullptr;
  }
  Folder folder(::fdopendir(fd));
  if (!folder) {
    ::close(fd);
  }
  return folder;
}

const dirent* next_entry(DIR* folder) {
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder);
    const std::string_view name = entry == nullptr ? std::string_view() : entry->d_name;
    if (name != "." && name != "..") {
      return entry;
    }
  }
}

int look(int folder, const char* name, struct stat& info) {
  return ::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
}

FileId id_of(const struct stat& info) { return {info.st_dev, info.st_ino}; }

class Walker {
 public:
  Walker(const std::vector<policy::SubMount>& mounts, ForbiddenFiles& forbidden,
         const WalkLimits& limits)
      : mounts_(mounts), forbidden_(forbidden), limits_(limits) {}

  Result<WalkedTree> walk(int top) {
    CARREL_TRY(enter(top, ".", "", 0));
    CARREL_TRY(judge_linked());
    return std::move(tree_);
  }

 private:
  [[nodiscard]] bool goes_on() const {
    return tree_.examined == Examined::kAll && tree_.noticed.size() <= policy::kMostHidden;
  }

  // `path` is that of the folder itself, from the top.
  Status enter(int parent, const char* name, const std::string& path, std::size_t depth) {
    Folder folder = open_folder(parent, name);
    struct stat info{};
    if (!folder) {
      return cannot_open(parent, name, path);
    }
    if (::fstat(::dirfd(folder.get()), &info) != 0) {
      return system_error("look at '" + path + "'");
    }
    while (goes_on()) {
      const dirent* entry = next_entry(folder.get());
      if (entry == nullptr) {
        return errno == 0 ? Status{} : Status{system_error("list '" + path + "'")};
      }
      if (++count_ > limits_.entries) {
        tree_.examined = Examined::kTooMany;
        break;
      }
      const std::string child = path.empty() ? entry->d_name : path + "/" + entry->d_name;
      CARREL_ASSIGN(const Next next, examine(::dirfd(folder.get()), entry->d_name, child, depth));
      if (next == Next::kLeave) {
        // Names that can be read and files that cannot: the folder as a whole is hidden.
        notice(path, FileKind::kFolder, id_of(info), Noticed::kUnreadable);
        break;
      }
    }
    return {};
  }

  enum class Next { kGoOn, kLeave };

  Result<Next> examine(int folder, const char* name, const std::string& path, std::size_t depth) {
    struct stat info{};
    if (look(folder, name, info) != 0) {
      if (errno == EACCES) {
        return Next::kLeave;
      }
      if (errno == ENOENT) {  // removed meanwhile
        return Next::kGoOn;
      }
      return system_error("look at '" + path + "'");
    }
    if (S_ISLNK(info.st_mode)) {  // leads to something inside the sandbox, whatever its text
      return Next::kGoOn;
    }
    const FileKind kind = kind_of(info.st_mode);
    if (policy::is_credential_name(name)) {
      notice(path, kind, id_of(info), Noticed::kCredentialName);
    } else if (kind == FileKind::kFolder && !is_kernels(path)) {
      if (depth >= limits_.depth) {
        tree_.examined = Examined::kTooDeep;
        return Next::kGoOn;
      }
      CARREL_TRY(enter(folder, name, path, depth + 1));
    } else if (kind == FileKind::kFile && info.st_nlink > 1) {
      Linked& linked = linked_[{info.st_dev, info.st_ino}];
      linked.names = info.st_nlink;
      linked.paths.push_back(path);
    } else if (kind != FileKind::kFile && kind != FileKind::kFolder) {
      notice(path, kind, id_of(info), Noticed::kChannel);
    }
    return Next::kGoOn;
  }

  // A file all of whose names are in the tree has none in a forbidden place. With mounts in the
  // tree one name can be seen twice, so that counting them says nothing.
  Status judge_linked() {
    for (const auto& [id, linked] : linked_) {
      if (!goes_on()) {
        break;
      }
      if (mounts_.empty() && linked.paths.size() >= linked.names) {
        continue;
      }
      const FileId file{id.first, id.second};
      CARREL_ASSIGN(const bool forbidden, forbidden_.hold(file));
      for (const std::string& path : linked.paths) {
        if (forbidden) {
          notice(path, FileKind::kFile, file, Noticed::kForbiddenLink);
        }
      }
    }
    return {};
  }

  Status cannot_open(int parent, const char* name, const std::string& path) {
    const int reason = errno;
    struct stat info{};
    if (reason == EACCES || reason == EPERM) {
      const bool seen = look(parent, name, info) == 0;
      notice(path, FileKind::kFolder, seen ? id_of(info) : FileId{}, Noticed::kUnreadable);
      return {};
    }
    // Replaced or removed since it was listed.
    if ((reason == ENOENT || reason == ENOTDIR || reason == ELOOP) && !path.empty()) {
      return {};
    }
    return system_error(reason, "open the folder '" + path + "'");
  }

  [[nodiscard]] bool is_kernels(const std::string& path) const {
    return std::any_of(mounts_.begin(), mounts_.end(), [&](const policy::SubMount& mount) {
      return mount.path == path && policy::is_kernel_file_system(mount.at.file_system);
    });
  }

  void notice(const std::string& path, FileKind kind, FileId id, Noticed why) {
    tree_.noticed.push_back({path, kind, id, why});
  }

  const std::vector<policy::SubMount>& mounts_;
  ForbiddenFiles& forbidden_;
  const WalkLimits& limits_;
  struct Linked {
    std::size_t names = 0;
    std::vector<std::string> paths;
  };
  std::map<std::pair<std::uint64_t, std::uint64_t>, Linked> linked_;
  std::size_t count_ = 0;
  WalkedTree tree_;
};

// Collects the files with several names below forbidden places.
class Collector {
 public:
  std::set<std::pair<std::uint64_t, std::uint64_t>> files;

  // False when there is too much.
  bool collect(int parent, const char* name, std::size_t depth) {
    struct stat info{};
    if (look(parent, name, info) != 0) {
      return true;  // not there, or not for the caller, who then could not have linked to it
    }
    if (S_ISREG(info.st_mode) && info.st_nlink > 1) {
      files.emplace(info.st_dev, info.st_ino);
    }
    if (!S_ISDIR(info.st_mode)) {
      return true;
    }
    const Folder folder = open_folder(parent, name);
    if (!folder) {
      return true;
    }
    if (depth > kDeepestForbidden) {
      return false;
    }
    while (const dirent* entry = next_entry(folder.get())) {
      if (++count_ > kMostForbiddenEntries) {
        return false;
      }
      const bool skipped =
          entry->d_type == DT_LNK || std::find(kCaches.begin(), kCaches.end(),
                                               std::string_view(entry->d_name)) != kCaches.end();
      if (skipped) {
        continue;
      }
      if (!collect(::dirfd(folder.get()), entry->d_name, depth + 1)) {
        return false;
      }
    }
    return true;
  }

 private:
  std::size_t count_ = 0;
};

}  // namespace

FileKind kind_of(unsigned mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return FileKind::kFolder;
    case S_IFREG:
      return FileKind::kFile;
    case S_IFSOCK:
      return FileKind::kSocket;
    case S_IFIFO:
      return FileKind::kPipe;
    default:
      return FileKind::kDevice;
  }
}

Result<bool> ForbiddenFiles::hold(FileId file) {
  if (!files_.has_value()) {
    Collector collector;
    for (const policy::ForbiddenPlace& place : places_) {
      const bool searched =
          place.forbidden.reach == policy::Reach::kBelowAndAbove &&
          std::none_of(kNotSearched.begin(), kNotSearched.end(), [&](std::string_view path) {
            return policy::path_holds(path, place.at.path);
          });
      if (searched && !collector.collect(AT_FDCWD, place.at.path.c_str(), 0)) {
        return Error{Code::kResource, 0,
                     "'" + place.forbidden.path + "' has too many files to be looked through",
                     "a file to be mounted has several names, and one of them could be there"};
      }
    }
    files_ = std::move(collector.files);
  }
  return files_->contains({file.device, file.inode});
}

Result<WalkedTree> walk_tree(int folder, const std::vector<policy::SubMount>& mounts,
                             ForbiddenFiles& forbidden, const WalkLimits& limits) {
  return Walker(mounts, forbidden, limits).walk(folder);
}

}  // namespace carrel::storage
