#include "sandbox/tree_to_host.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/files.h"

namespace carrel::sandbox {

namespace {

using protocol::FileEntry;
using protocol::FileKind;

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
constexpr unsigned kModeBits = 0777;
// What is announced counts, holes included, so that a lie about sizes costs nothing but its limit.
constexpr TreeLimits kLimits{.bytes = 64ULL << 40, .entries = 4'000'000};

std::string in_quotes(const std::string& path) { return "'" + path + "'"; }

std::string temporary_name() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return ".carrel-" + std::to_string(::getpid()) + "-" + std::to_string(now) + ".new";
}

std::array<timespec, 2> times_of(std::uint64_t modified_ns) {
  std::array<timespec, 2> times{};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(modified_ns / 1'000'000'000);
  times[1].tv_nsec = static_cast<long>(modified_ns % 1'000'000'000);
  if (modified_ns == 0) {
    times[1].tv_nsec = UTIME_OMIT;
  }
  return times;
}

// Not every kernel inside tells of holes (gVisor's does not): a file that takes nothing there must
// not fill the host's disk.
bool is_empty_block(std::string_view data) {
  constexpr std::size_t kBlock = 4096;
  return data.size() >= kBlock && data[0] == '\0' &&
         std::memcmp(data.data(), data.data() + 1, data.size() - 1) == 0;
}

// Splits a path of the host. "a" is "." and "a".
void split(std::string path, std::string& parent, std::string& name) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  const std::size_t slash = path.rfind('/');
  name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

TreeToHost::~TreeToHost() {
  file_.reset();
  if (!temporary_.empty()) {
    (void)remove_tree_at(parent_.get(), temporary_);
  }
}

// The first entry says what it is.
Status TreeToHost::begin(const FileEntry& entry) {
  begun_ = true;
  struct stat info{};
  const bool exists = ::stat(path_.c_str(), &info) == 0;
  const bool directory = exists && S_ISDIR(info.st_mode);
  if (directory && !name_.empty()) {
    path_ += (path_.back() == '/' ? "" : "/") + name_;
  }
  if (!directory && !path_.empty() && path_.back() == '/' && entry.kind == FileKind::kFile) {
    return Error{Code::kNotFound, 0, in_quotes(path_) + " on the host is not a directory", {}};
  }
  if (entry.kind == FileKind::kDirectory && directory && name_.empty()) {
    parent_.reset(::open(path_.c_str(), kDirectory));
    if (!parent_.valid()) {
      return system_error("open " + in_quotes(path_));
    }
    last_ = ".";
    return begin_tree();
  }
  if (entry.kind == FileKind::kDirectory && exists && !directory) {
    return Error{Code::kConflict,
                 0,
                 in_quotes(path_) + " is a file on the host, and what is copied is a directory",
                 {}};
  }
  std::string above;
  split(path_, above, last_);
  if (last_.empty() || last_ == "." || last_ == "..") {
    return Error{Code::kInvalid, 0, in_quotes(path_) + " is not a name for something new", {}};
  }
  parent_.reset(::open(above.c_str(), kDirectory));
  if (!parent_.valid()) {
    return system_error("open " + in_quotes(above));
  }
  return entry.kind == FileKind::kDirectory ? begin_tree() : begin_file(entry);
}

Status TreeToHost::begin_tree() {
  struct stat info{};
  std::string name = last_;
  if (name != "." && ::fstatat(parent_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    temporary_ = temporary_name();
    name = temporary_;
    if (::mkdirat(parent_.get(), name.c_str(), 0700) != 0) {
      temporary_.clear();
      return system_error("make a directory for " + in_quotes(path_));
    }
  }
  top_.reset(::openat(parent_.get(), name.c_str(), kDirectory | O_NOFOLLOW));
  if (!top_.valid()) {
    return errno == ENOTDIR || errno == ELOOP
               ? Status{Error{
                     Code::kConflict, 0, in_quotes(path_) + " on the host is no directory", {}}}
               : Status{system_error("open " + in_quotes(path_))};
  }
  tree_.emplace(top_.get(), kLimits, TreeWriter::InTheWay::kOnlyFiles);
  return {};
}

Status TreeToHost::begin_file(const FileEntry& entry) {
  struct stat info{};
  if (::fstatat(parent_.get(), last_.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISDIR(info.st_mode)) {
    return Error{Code::kConflict, 0, in_quotes(path_) + " is a directory on the host", {}};
  }
  temporary_ = temporary_name();
  file_.reset(::openat(parent_.get(), temporary_.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_.valid()) {
    temporary_.clear();
    return system_error("write " + in_quotes(path_));
  }
  mode_ = entry.mode & kModeBits;
  modified_ns_ = entry.modified_ns;
  return {};
}

Status TreeToHost::entry(const FileEntry& entry) {
  CARREL_TRY(finish_file());
  ++entries_;
  if (progress_) {
    progress_(bytes_, entries_);
  }
  if (!begun_) {
    return entry.path.empty() ? begin(entry)
                              : Status{Error{Code::kGone, 0, "the tree has no top", {}}};
  }
  const std::string path(entry.path);
  if (!tree_.has_value()) {
    return Error{Code::kGone, 0, "more than the file that was asked for came", {}};
  }
  switch (entry.kind) {
    case FileKind::kDirectory:
      return tree_->directory(path);
    case FileKind::kDirectoryEnd:
      --entries_;
      if (path.empty() && temporary_.empty()) {  // it was there before
        return {};
      }
      return tree_->finish_directory(path, entry.mode & kModeBits, entry.modified_ns);
    case FileKind::kLink:
      return tree_->symbolic_link(path, std::string(entry.target));
    case FileKind::kFile: {
      CARREL_ASSIGN(file_, tree_->file(path, 0600, entry.size));
      mode_ = entry.mode & kModeBits;
      modified_ns_ = entry.modified_ns;
      return {};
    }
    default:
      return Error{Code::kGone, 0, "something came that no tree has", {}};
  }
}

Status TreeToHost::contents(std::string_view data) {
  bytes_ += data.size();
  if (progress_) {
    progress_(bytes_, entries_);
  }
  if (is_empty_block(data)) {
    return hole(data.size());
  }
  sparse_end_ = false;
  return write_all(file_.get(), data);
}

Status TreeToHost::hole(std::uint64_t size) {
  sparse_end_ = true;
  if (::lseek(file_.get(), static_cast<off_t>(size), SEEK_CUR) < 0) {
    return system_error("write " + in_quotes(path_));
  }
  return {};
}

Status TreeToHost::finish_file() {
  if (!file_.valid()) {
    return {};
  }
  if (sparse_end_ && ::ftruncate(file_.get(), ::lseek(file_.get(), 0, SEEK_CUR)) != 0) {
    return system_error("write " + in_quotes(path_));
  }
  sparse_end_ = false;
  const std::array<timespec, 2> times = times_of(modified_ns_);
  if (::fchmod(file_.get(), mode_) != 0 || ::futimens(file_.get(), times.data()) != 0) {
    return system_error("set the mode of " + in_quotes(path_));
  }
  file_.reset();
  return {};
}

Status TreeToHost::finish() {
  CARREL_TRY(finish_file());
  if (temporary_.empty()) {
    return {};
  }
  if (::renameat(parent_.get(), temporary_.c_str(), parent_.get(), last_.c_str()) != 0) {
    return system_error("rename to " + in_quotes(path_));
  }
  temporary_.clear();
  return {};
}

}  // namespace carrel::sandbox
