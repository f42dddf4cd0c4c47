#include "storage/images/tree_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <map>
#include <utility>

#include "base/file_copy.h"
#include "base/files.h"

namespace carrel::storage {

namespace {

Error copy_error(const std::string& path) { return system_error("copy '" + path + "'"); }

// Blocks are shared where the file system can, unless the contents are to be what was hashed.
Status copy_file(int from, int to, std::uint64_t size, Sha256* hash, const std::string& path) {
  const bool shared = hash == nullptr && share_contents(from, to);
  return shared ? Status{} : copy_contents(from, to, size, hash, path);
}

class Copier {
 public:
  Copier(TreeWriter& to, LeftOut& left_out, const CopyOptions& options)
      : to_(to), left_out_(left_out), hash_(options.hash) {
    if (options.without >= 0) {
      ::fstat(options.without, &without_);
    }
  }

  Status directory(int from, const std::string& path, dev_t device) {
    CARREL_ASSIGN(const std::vector<std::string> names, list_directory(from));
    for (const std::string& name : names) {
      CARREL_ASSIGN(const std::string below, normal_path(path.empty() ? name : path + "/" + name));
      CARREL_TRY(entry(from, name, below, device));
    }
    return {};
  }

 private:
  Status entry(int from, const std::string& name, const std::string& path, dev_t device) {
    struct stat info{};
    if (::fstatat(from, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return copy_error(path);
    }
    if (S_ISDIR(info.st_mode)) {
      UniqueFd next(::openat(from, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next.valid() || ::fstat(next.get(), &info) != 0) {
        return copy_error(path);
      }
      if (info.st_dev != device ||
          (info.st_ino == without_.st_ino && info.st_dev == without_.st_dev)) {
        ++left_out_.mounts;
        return {};
      }
      note("d", path, 0);
      left_out_.set_ids += (info.st_mode & 06000) != 0 ? 1U : 0U;
      CARREL_TRY(to_.directory(path));
      return directory(next.get(), path, device);
    }
    if (S_ISLNK(info.st_mode)) {
      return link(from, name, path);
    }
    if (S_ISREG(info.st_mode)) {
      return file(from, name, path);
    }
    ++left_out_.devices;
    return {};
  }

  Status link(int from, const std::string& name, const std::string& path) {
    std::array<char, kLongestPath + 1> target{};
    const ssize_t n = ::readlinkat(from, name.c_str(), target.data(), target.size());
    if (n <= 0 || static_cast<std::size_t>(n) == target.size()) {
      return copy_error(path);
    }
    const std::string text(target.data(), static_cast<std::size_t>(n));
    note("l", path, text.size());
    if (hash_ != nullptr) {
      hash_->update(text);
    }
    return to_.symbolic_link(path, text);
  }

  Status file(int from, const std::string& name, const std::string& path) {
    UniqueFd source(::openat(from, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info{};
    if (!source.valid() || ::fstat(source.get(), &info) != 0) {
      return copy_error(path);
    }
    if (!S_ISREG(info.st_mode)) {
      return Error{Code::kConflict, 0, "'" + path + "' changed while it was read", {}};
    }
    if (info.st_nlink > 1) {
      auto [known, first] = linked_.try_emplace({info.st_dev, info.st_ino}, path);
      if (!first) {
        note("h", path, known->second.size());
        if (hash_ != nullptr) {
          hash_->update(known->second);
        }
        return to_.hard_link(path, known->second);
      }
    }
    left_out_.set_ids += (info.st_mode & 06000) != 0 ? 1U : 0U;
    left_out_.attributes += ::flistxattr(source.get(), nullptr, 0) > 0 ? 1U : 0U;
    const auto size = static_cast<std::uint64_t>(info.st_size);
    note((info.st_mode & 0111) != 0 ? "x" : "f", path, size);
    CARREL_ASSIGN(UniqueFd copy, to_.file(path, info.st_mode, size));
    CARREL_TRY(copy_file(source.get(), copy.get(), size, hash_, path));
    const std::array<timespec, 2> times = {info.st_mtim, info.st_mtim};
    if (::futimens(copy.get(), times.data()) != 0) {
      return copy_error(path);
    }
    return {};
  }

  // One entry of what is hashed; the length says where its contents end.
  void note(std::string_view kind, const std::string& path, std::uint64_t length) {
    if (hash_ != nullptr) {
      hash_->update(kind);
      hash_->update(std::string_view(path.c_str(), path.size() + 1));
      hash_->update(std::to_string(length) + "\n");
    }
  }

  TreeWriter& to_;
  LeftOut& left_out_;
  Sha256* hash_;
  struct stat without_{};
  std::map<std::pair<dev_t, ino_t>, std::string> linked_;
};

}  // namespace

Status copy_tree(int from, TreeWriter& to, LeftOut& left_out, const CopyOptions& options) {
  struct stat info{};
  if (::fstat(from, &info) != 0) {
    return system_error("look at the directory to copy");
  }
  return Copier(to, left_out, options).directory(from, "", info.st_dev);
}

}  // namespace carrel::storage
