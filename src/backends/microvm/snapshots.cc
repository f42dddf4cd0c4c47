#include "backends/microvm/snapshots.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/sha256.h"
#include "storage/box.h"

namespace carrel::microvm {

namespace {

constexpr char kFolder[] = "/machines";
constexpr char kUnfinished[] = ".new";
constexpr char kAbout[] = ".about";
constexpr char kFailed[] = ".failed";
constexpr std::size_t kNameSize = 40;
constexpr std::time_t kUnused = 7L * 24 * 3600;
constexpr std::time_t kTryAgain = 3600;

Error denied(const std::string& what) {
  return Error{Code::kDenied, 0, what, "remove it, or chmod go= it if it is yours"};
}

// CRITICAL: what is in it becomes the memory of machines.
bool is_mine_alone(const struct stat& info) {
  return info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

// A file that was replaced or changed has another one.
std::string identity(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) {
    return path + " is missing";
  }
  std::string text = path;
  for (const std::uint64_t number :
       {std::uint64_t{info.st_dev}, std::uint64_t{info.st_ino},
        static_cast<std::uint64_t>(info.st_size), static_cast<std::uint64_t>(info.st_mtim.tv_sec),
        static_cast<std::uint64_t>(info.st_mtim.tv_nsec)}) {
    text += " " + std::to_string(number);
  }
  return text;
}

// Whether the files of these lines are what they were.
bool still_holds(std::string_view about) {
  bool holds = !about.empty();
  while (holds && !about.empty()) {
    const std::size_t end = std::min(about.find('\n'), about.size());
    const std::string line(about.substr(0, end));
    const std::size_t space = line.find(' ');
    holds = space != std::string::npos && identity(line.substr(0, space)) == line;
    about.remove_prefix(std::min(end + 1, about.size()));
  }
  return holds;
}

bool is_name(std::string_view text) {
  return text.size() == kNameSize &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct Kept {
  std::string name;
  std::time_t used = 0;
};

}  // namespace

bool uses_snapshots(Accelerator accelerator) {
  const char* const named = std::getenv("CARREL_VM_SNAPSHOTS");
  const std::string_view wish = named == nullptr ? "" : named;
  return wish != "off" && (wish == "on" || accelerator == Accelerator::kEmulated);
}

bool Snapshots::exist(const std::string& home) {
  return ::access((home + kFolder).c_str(), F_OK) == 0;
}

Result<Snapshots> Snapshots::open(const std::string& home) {
  const std::string path = home + kFolder;
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("make " + path);
  }
  CARREL_ASSIGN(UniqueFd folder, open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  struct stat info{};
  if (::fstat(folder.get(), &info) != 0 || !is_mine_alone(info)) {
    return denied("the folder '" + path + "' is not yours alone, so no machine begins from there");
  }
  return Snapshots(std::move(folder));
}

std::string Snapshots::about(const Shape& shape) {
  return identity(shape.vmm) + "\n" + identity(shape.kernel.path) + "\n";
}

std::string Snapshots::name_of(const Shape& shape) {
  Sha256 sum;
  sum.update(about(shape));
  sum.update(shape.version + "\n" + shape.kernel.release + "\n");
  const bool kvm = shape.terms.accelerator == Accelerator::kKvm;
  // What the host's processor has is the machine's then, and a new kernel of the host may change
  // it.
  sum.update(kvm ? "kvm " + storage::boot_id() + "\n" : std::string("emulated\n"));
  sum.update(std::to_string(shape.terms.memory_bytes) + " " + std::to_string(shape.terms.cpus));
  sum.update("\n");
  for (const std::string& word : shape.arguments) {
    sum.update(word + "\n");
  }
  sum.update(shape.first_files);
  return sum.finish().substr(0, kNameSize);
}

Result<UniqueFd> Snapshots::find(const std::string& name) const {
  auto file = open_at(folder_.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (!file.ok() && file.error().error_number == ENOENT) {
    return Error{Code::kNotFound, 0, "there is no such snapshot", {}};
  }
  struct stat info{};
  // CRITICAL: a link, or a second name of the file, is a way for others to it.
  if (!file.ok() || ::fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_nlink != 1 || !is_mine_alone(info)) {
    remove(name);
    return denied("a snapshot was not yours alone, so the machine was booted");
  }
  ::utimensat(folder_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // it is used
  return std::move(file.value());
}

void Snapshots::remove(const std::string& name) const {
  ::unlinkat(folder_.get(), name.c_str(), 0);
  ::unlinkat(folder_.get(), (name + kAbout).c_str(), 0);
}

Status Snapshots::can_make(const std::string& name) const {
  constexpr std::uint64_t kFree = 1ULL << 30;
  constexpr std::uint64_t kPart = 20;
  struct statvfs disk{};
  if (::fstatvfs(folder_.get(), &disk) != 0) {
    return system_error("look at the disk");
  }
  if (disk.f_bavail * disk.f_frsize < kFree || disk.f_bavail < disk.f_blocks / kPart) {
    return Error{Code::kUnavailable, 0, "the disk is nearly full", {}};
  }
  struct stat info{};
  if (::fstatat(folder_.get(), (name + kFailed).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      std::time(nullptr) - info.st_mtim.tv_sec < kTryAgain) {
    return Error{Code::kUnavailable, 0, "a snapshot was tried not long ago, and did not work", {}};
  }
  auto unfinished = open_at(folder_.get(), name + kUnfinished, O_RDONLY | O_NOFOLLOW);
  if (unfinished.ok() && ::flock(unfinished->get(), LOCK_SH | LOCK_NB) != 0) {
    return Error{Code::kUnavailable, 0, "it is being made", {}};
  }
  return {};
}

Result<UniqueFd> Snapshots::begin(const std::string& name) const {
  const std::string draft = name + kUnfinished;
  CARREL_ASSIGN(UniqueFd file, open_at(folder_.get(), draft, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  struct stat info{};
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 || ::fstat(file.get(), &info) != 0 ||
      info.st_nlink != 1 || !is_mine_alone(info) ||
      ::faccessat(folder_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    return Error{Code::kConflict, 0, "somebody else makes that snapshot", {}};
  }
  if (::ftruncate(file.get(), 0) != 0) {
    return system_error("empty " + draft);
  }
  return file;
}

Status Snapshots::publish(const std::string& name, const UniqueFd& file,
                          const std::string& about) const {
  if (::fdatasync(file.get()) != 0) {
    return system_error("write a snapshot");
  }
  // A sweep would take one of the two for a remainder.
  if (::flock(folder_.get(), LOCK_EX) != 0) {
    return system_error("lock the snapshots");
  }
  CARREL_TRY(replace_file_at(folder_.get(), name + kAbout, about, 0600, Lasting::kUnsynced));
  const bool there =
      ::renameat(folder_.get(), (name + kUnfinished).c_str(), folder_.get(), name.c_str()) == 0;
  const Status done = there ? Status() : system_error("keep a snapshot");
  ::flock(folder_.get(), LOCK_UN);
  return done;
}

void Snapshots::give_up(const std::string& name, const std::string& reason) const {
  (void)replace_file_at(folder_.get(), name + kFailed, reason + "\n", 0600, Lasting::kUnsynced);
}

void Snapshots::sweep() const {
  if (::flock(folder_.get(), LOCK_EX | LOCK_NB) != 0) {
    return;
  }
  const std::time_t now = std::time(nullptr);
  auto names = list_directory(folder_.get());
  std::vector<Kept> kept;
  for (const std::string& name : names.ok() ? names.value() : std::vector<std::string>()) {
    struct stat info{};
    if (::fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    const std::string stem = name.substr(0, kNameSize);
    const std::string_view end = std::string_view(name).substr(stem.size());
    if (!is_name(stem)) {
      continue;  // nothing of ours
    }
    if (end.empty()) {
      auto text = read_file_at(folder_.get(), name + kAbout, 1U << 16);
      if (!text.ok() || !still_holds(text.value()) || now - info.st_mtim.tv_sec > kUnused) {
        remove(name);
      } else {
        kept.push_back({name, info.st_mtim.tv_sec});
      }
    } else if (end == kUnfinished) {
      auto file = open_at(folder_.get(), name, O_RDONLY | O_NOFOLLOW);
      if (!file.ok() || ::flock(file->get(), LOCK_EX | LOCK_NB) == 0) {
        ::unlinkat(folder_.get(), name.c_str(), 0);
      }
    } else if (end == kAbout) {
      if (::faccessat(folder_.get(), stem.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        ::unlinkat(folder_.get(), name.c_str(), 0);
      }
    } else if (end != kFailed || now - info.st_mtim.tv_sec > kTryAgain) {
      ::unlinkat(folder_.get(), name.c_str(), 0);
    }
  }
  std::sort(kept.begin(), kept.end(),
            [](const Kept& one, const Kept& other) { return one.used > other.used; });
  for (std::size_t i = kMost; i < kept.size(); ++i) {
    remove(kept[i].name);
  }
  ::flock(folder_.get(), LOCK_UN);
}

}  // namespace carrel::microvm
