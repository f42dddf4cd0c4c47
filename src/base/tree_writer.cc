#include "base/tree_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/files.h"
#include "base/open_below.h"

namespace carrel {

namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string quoted(std::string_view path) {
  constexpr std::size_t kShown = 200;
  return "'" + std::string(path.substr(0, kShown)) + (path.size() > kShown ? "...'" : "'");
}

std::string_view parent_part(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string name_part(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

Error refused(std::string_view path, std::string_view why) {
  return Error{Code::kDenied, 0, quoted(path) + " " + std::string(why), {}};
}

}  // namespace

Result<std::string> normal_path(std::string_view path) {
  std::string normal;
  std::size_t depth = 0;
  std::string_view rest = path;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.empty() || part == ".") {
      continue;
    }
    if (part == "..") {
      return refused(path, "leaves the tree it is in");
    }
    if (part.find('\0') != std::string_view::npos) {
      return refused(path.substr(0, path.find('\0')), "has a NUL byte in its name");
    }
    normal += (normal.empty() ? "" : "/") + std::string(part);
    if (++depth > kDeepestPath || normal.size() > kLongestPath) {
      return refused(path, "is deeper or longer than a path of a tree can be");
    }
  }
  return normal;
}

Status TreeWriter::count_entry(const std::string& path) {
  if (++entries_ > limits_.entries) {
    return Error{Code::kResource,
                 0,
                 "at " + quoted(path) + " there are more than " + std::to_string(limits_.entries) +
                     " entries",
                 {}};
  }
  return {};
}

// Opens one directory more. What stands in its place and is none is an error: a link there could
// lead anywhere.
Result<int> TreeWriter::enter(int parent, const std::string& name, std::string_view path,
                              Missing missing) {
  int fd = ::openat(parent, name.c_str(), kDirectory);
  if (fd < 0 && errno == ENOENT && missing == Missing::kMake) {
    if (::mkdirat(parent, name.c_str(), 0755) != 0) {
      return system_error("make directory " + quoted(path));
    }
    fd = ::openat(parent, name.c_str(), kDirectory);
  }
  if (fd < 0) {
    if (errno == ENOTDIR || errno == ELOOP) {
      return Error{Code::kDenied,
                   errno,
                   quoted(path) + " goes through '" + name + "', which is no directory",
                   {}};
    }
    return system_error("open directory " + quoted(path));
  }
  open_.push_back({name, UniqueFd(fd)});
  return fd;
}

Result<int> TreeWriter::open_directory(std::string_view path, Missing missing) {
  std::size_t kept = 0;
  std::string_view rest = path;
  const auto take = [&rest] {
    const std::string part(rest.substr(0, rest.find('/')));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    return part;
  };
  int directory = root_;
  while (!rest.empty()) {
    const std::string_view before = rest;
    const std::string part = take();
    if (kept == open_.size() || open_[kept].name != part) {
      rest = before;
      break;
    }
    directory = open_[kept++].directory.get();
  }
  open_.resize(kept);
  while (!rest.empty()) {
    const std::string part = take();
    CARREL_ASSIGN(directory, enter(directory, part, path, missing));
  }
  return directory;
}

Status TreeWriter::directory(const std::string& path) {
  CARREL_TRY(count_entry(path));
  if (path.empty()) {
    return {};
  }
  CARREL_ASSIGN(int parent, open_directory(parent_part(path), Missing::kMake));
  const std::string name = name_part(path);
  if (::mkdirat(parent, name.c_str(), 0755) == 0) {
    return {};
  }
  struct stat info{};
  if (errno != EEXIST || ::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("make directory " + quoted(path));
  }
  if (S_ISDIR(info.st_mode)) {
    return {};
  }
  if (in_the_way_ == InTheWay::kOnlyFiles) {
    return refused(path, "is a directory, and something else is in its place already");
  }
  if (::unlinkat(parent, name.c_str(), 0) != 0 || ::mkdirat(parent, name.c_str(), 0755) != 0) {
    return system_error("make directory " + quoted(path));
  }
  return {};
}

Result<UniqueFd> TreeWriter::file(const std::string& path, unsigned mode, std::uint64_t size) {
  CARREL_TRY(count_entry(path));
  if (size > limits_.bytes - bytes_) {
    return Error{Code::kResource,
                 0,
                 "at " + quoted(path) + " there are more than " +
                     std::to_string(limits_.bytes >> 20) + " MiB",
                 {}};
  }
  bytes_ += size;
  CARREL_TRY(make_way(path));
  CARREL_ASSIGN(int parent, open_directory(parent_part(path), Missing::kMake));
  return open_at(parent, name_part(path), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
}

Status TreeWriter::finish_directory(const std::string& path, unsigned mode,
                                    std::uint64_t modified_ns) {
  auto parent = open_directory(path, Missing::kLeave);
  if (!parent.ok()) {
    return parent.error();
  }
  std::array<timespec, 2> times{};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(modified_ns / 1'000'000'000);
  times[1].tv_nsec = static_cast<long>(modified_ns % 1'000'000'000);
  if (::fchmod(parent.value(), mode) != 0 || ::futimens(parent.value(), times.data()) != 0) {
    return system_error("set the mode of " + quoted(path));
  }
  return {};
}

Status TreeWriter::make_way(const std::string& path) {
  if (in_the_way_ == InTheWay::kReplaced || path.empty()) {
    return remove(path);
  }
  auto parent = open_directory(parent_part(path), Missing::kLeave);
  if (!parent.ok()) {
    return parent.error().error_number == ENOENT ? Status{} : Status{parent.error()};
  }
  if (::unlinkat(parent.value(), name_part(path).c_str(), 0) == 0 || errno == ENOENT) {
    return {};
  }
  return errno == EISDIR
             ? Status{refused(path, "is no directory, and a directory is in its place already")}
             : Status{system_error("replace " + quoted(path))};
}

Status TreeWriter::symbolic_link(const std::string& path, const std::string& target) {
  CARREL_TRY(count_entry(path));
  CARREL_TRY(make_way(path));
  CARREL_ASSIGN(int parent, open_directory(parent_part(path), Missing::kMake));
  if (::symlinkat(target.c_str(), parent, name_part(path).c_str()) != 0) {
    return system_error("make link " + quoted(path));
  }
  return {};
}

Status TreeWriter::hard_link(const std::string& path, const std::string& target) {
  CARREL_TRY(count_entry(path));
  if (path == target) {
    return {};
  }
  auto from = open_directory(parent_part(target), Missing::kLeave);
  struct stat info{};
  if (!from.ok() ||
      ::fstatat(from.value(), name_part(target).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      S_ISDIR(info.st_mode)) {
    return refused(path, "is a link to " + quoted(target) + ", which is no file of the same layer");
  }
  // A descriptor of its own: the way to `path` is another one.
  UniqueFd held(::openat(from.value(), ".", kDirectory));
  CARREL_TRY(make_way(path));
  CARREL_ASSIGN(int parent, open_directory(parent_part(path), Missing::kMake));
  if (::linkat(held.get(), name_part(target).c_str(), parent, name_part(path).c_str(), 0) != 0) {
    return system_error("link " + quoted(path) + " to " + quoted(target));
  }
  return {};
}

Status TreeWriter::remove(const std::string& path) {
  if (path.empty()) {
    return refused("/", "is the root, which stays a directory");
  }
  auto parent = open_directory(parent_part(path), Missing::kLeave);
  if (!parent.ok()) {
    return parent.error().error_number == ENOENT ? Status{} : Status{parent.error()};
  }
  const std::string name = name_part(path);
  if (::unlinkat(parent.value(), name.c_str(), 0) == 0 || errno == ENOENT) {
    return {};
  }
  Status removed = remove_tree_at(parent.value(), name);
  open_.clear();  // some of them may be gone
  return removed;
}

Status TreeWriter::clear(const std::string& path) {
  if (!path.empty()) {
    auto parent = open_directory(parent_part(path), Missing::kLeave);
    struct stat info{};
    if (!parent.ok() ||
        ::fstatat(parent.value(), name_part(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return {};
    }
    CARREL_TRY(remove(path));
    return directory(path);
  }
  open_.clear();
  CARREL_ASSIGN(std::vector<std::string> names, list_directory(root_));
  for (const std::string& name : names) {
    CARREL_TRY(remove_tree_at(root_, name));
  }
  return {};
}

Result<UniqueFd> open_file_below(int root, const std::string& path) {
  CARREL_ASSIGN(const std::string normal, normal_path(path));
  CARREL_ASSIGN(UniqueFd file, open_below(root, normal, O_RDONLY | O_NONBLOCK, Mounts::kEntered));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) {
    return system_error("open " + quoted(path));
  }
  if (!S_ISREG(info.st_mode)) {
    return refused(path, "is no regular file");
  }
  return file;
}

}  // namespace carrel
