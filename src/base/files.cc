#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "base/tree_visit.h"

namespace carrel {

Result<UniqueFd> open_at(int dir, const std::string& path, int flags, unsigned mode) {
  int fd = ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) {
    return system_error("open '" + path + "'");
  }
  return UniqueFd(fd);
}

Result<std::string> read_all(int fd, std::size_t limit) {
  std::string data;
  char buffer[16384];
  for (;;) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      return system_error("read");
    }
    if (n == 0) {
      return data;
    }
    if (data.size() + static_cast<std::size_t>(n) > limit) {
      return Error{Code::kResource, 0, "more than " + std::to_string(limit) + " bytes", {}};
    }
    data.append(buffer, static_cast<std::size_t>(n));
  }
}

Result<std::string> read_file_at(int dir, const std::string& path, std::size_t limit) {
  CARREL_ASSIGN(UniqueFd fd, open_at(dir, path, O_RDONLY));
  auto data = read_all(fd.get(), limit);
  if (!data.ok()) {
    data.error().message = "read '" + path + "': " + data.error().message;
  }
  return data;
}

Status write_value_at(int dir, const std::string& path, std::string_view value) {
  CARREL_ASSIGN(UniqueFd fd, open_at(dir, path, O_WRONLY));
  ssize_t n = ::write(fd.get(), value.data(), value.size());
  if (n != static_cast<ssize_t>(value.size())) {
    return system_error("write '" + std::string(value) + "' to '" + path + "'");
  }
  return {};
}

Status write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      return system_error("write");
    }
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status replace_file_at(int dir, const std::string& path, std::string_view data, unsigned mode,
                       Lasting lasting) {
  std::string temporary = path + "." + std::to_string(::gettid()) + ".new";
  CARREL_ASSIGN(UniqueFd fd,
                open_at(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
  Status written = write_all(fd.get(), data);
  if (written.ok() && lasting == Lasting::kSynced && ::fsync(fd.get()) != 0) {
    written = system_error("sync '" + path + "'");
  }
  if (written.ok() && ::renameat(dir, temporary.c_str(), dir, path.c_str()) != 0) {
    written = system_error("rename to '" + path + "'");
  }
  if (!written.ok()) {
    ::unlinkat(dir, temporary.c_str(), 0);
  }
  return written;
}

Status make_directories(const std::string& path, unsigned mode) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') {
      continue;
    }
    std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      int reason = errno;
      struct stat info{};
      if (::stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        return system_error(reason, "create directory '" + part + "'");
      }
    }
  }
  return {};
}

Result<DirectoryEntries> DirectoryEntries::open_at(int dir, const std::string& path) {
  CARREL_ASSIGN(UniqueFd fd, carrel::open_at(dir, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  DIR* stream = ::fdopendir(fd.get());
  if (stream == nullptr) {
    return system_error("list directory '" + path + "'");
  }
  return DirectoryEntries(stream, fd.release(), path);
}

const dirent* DirectoryEntries::next() {
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream_.get());
    if (entry == nullptr) {
      error_number_ = errno;
      return nullptr;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") {
      return entry;
    }
  }
}

Status DirectoryEntries::failure() const {
  if (error_number_ == 0) {
    return {};
  }
  return system_error(error_number_, "list directory '" + path_ + "'");
}

Result<std::vector<std::string>> list_directory(int fd) {
  CARREL_ASSIGN(DirectoryEntries entries, DirectoryEntries::open_at(fd, "."));
  std::vector<std::string> names;
  while (const dirent* entry = entries.next()) {
    names.emplace_back(entry->d_name);
  }
  CARREL_TRY(entries.failure());
  std::sort(names.begin(), names.end());
  return names;
}

Status remove_tree_at(int dir, const std::string& name) {
  TreeVisit visit;
  visit.meet = [&](int directory, const std::string& child) -> Result<bool> {
    if (::unlinkat(directory, child.c_str(), 0) == 0 || errno == ENOENT) {
      return false;
    }
    if (errno != EISDIR && errno != EPERM) {
      return system_error("remove '" + child + "'");
    }
    struct stat info{};
    if (::fstatat(directory, child.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno == ENOENT ? Result<bool>(false) : system_error("remove '" + child + "'");
    }
    if (!S_ISDIR(info.st_mode)) {
      return system_error(EPERM, "remove '" + child + "'");
    }
    return true;
  };
  visit.leave = [](int directory, const std::string& child) -> Status {
    if (::unlinkat(directory, child.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return system_error("remove directory '" + child + "'");
    }
    return {};
  };
  return visit_tree(dir, name, visit);
}

}  // namespace carrel
