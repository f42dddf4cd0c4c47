#include "storage/workspaces/layer_files.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file_copy.h"

namespace carrel::storage {

namespace {

// With more files than this it is quicker to have the whole file system synced.
constexpr std::uint64_t kManyFiles = 128;

Error sync_error() { return system_error("sync the layer"); }

Status sync_each(const std::vector<UniqueFd>& all) {
  const bool synced = std::all_of(all.begin(), all.end(),
                                  [](const UniqueFd& fd) { return ::fsync(fd.get()) == 0; });
  return synced ? Status{} : Status{sync_error()};
}

// On btrfs: everything that was done to names and inodes, of everybody, and nobody's contents.
bool commit(int fd) {
  __u64 transaction = 0;
  return ::ioctl(fd, BTRFS_IOC_START_SYNC, &transaction) == 0 &&
         ::ioctl(fd, BTRFS_IOC_WAIT_SYNC, &transaction) == 0;
}

// On btrfs a file's contents are on the disk and known to its inode before they can be shared, so
// that a commit brings both: a sync of each file would write a log that the commit throws away.
bool can_be_committed(const std::vector<UniqueFd>& files, int last, int directory) {
  const UniqueFd other(::openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  return other.valid() && share_contents(last, other.get()) &&
         std::all_of(files.begin(), files.end(),
                     [&](const UniqueFd& fd) { return share_contents(fd.get(), other.get()); });
}

}  // namespace

LayerFiles::LayerFiles(int in) {
  struct statfs info{};
  if (::fstatfs(in, &info) == 0) {
    const auto type = static_cast<unsigned long>(info.f_type);
    kind_ = type == EXT4_SUPER_MAGIC    ? Kind::kExt4
            : type == BTRFS_SUPER_MAGIC ? Kind::kBtrfs
                                        : Kind::kOther;
  }
}

bool LayerFiles::are_many() const { return files_ > kManyFiles || others_.size() > 2 * kManyFiles; }

void LayerFiles::add_directory(UniqueFd fd) {
  if (kind_ == Kind::kOther && !are_many()) {
    others_.push_back(std::move(fd));
  }
}

void LayerFiles::add_copied(UniqueFd fd) {
  // So that the disk works while the next one is copied.
  ::sync_file_range(fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  ++files_;
  if (are_many()) {
    copied_.clear();
  } else {
    copied_.push_back(std::move(fd));
  }
}

void LayerFiles::add_shared(UniqueFd fd) {
  // On btrfs blocks are shared when they are on disk, and the rest is names and inodes.
  if (kind_ == Kind::kBtrfs) {
    return;
  }
  ++files_;
  if (!are_many()) {
    others_.push_back(std::move(fd));
  }
}

Status LayerFiles::sync_contents() {
  if (are_many() || kind_ == Kind::kBtrfs) {
    return {};  // all at once, when the layer is complete
  }
  if (kind_ != Kind::kExt4) {
    return sync_each(copied_);
  }
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const bool synced = std::all_of(copied_.begin(), copied_.end(), [](const UniqueFd& fd) {
    return ::sync_file_range(fd.get(), 0, 0, kAll) == 0;
  });
  return synced ? Status{} : Status{sync_error()};
}

Status LayerFiles::sync(int last, std::initializer_list<int> above) {
  if (are_many()) {
    return ::syncfs(last) == 0 ? Status{} : Status{sync_error()};
  }
  if (kind_ == Kind::kBtrfs) {
    if (can_be_committed(copied_, last, *above.begin()) && commit(last)) {
      return {};
    }
    CARREL_TRY(sync_each(copied_));
  }
  if (::fsync(last) != 0) {
    return sync_error();
  }
  switch (kind_) {
    case Kind::kExt4:
      return {};  // one sync brings everything to the disk that was done to names and inodes before
    case Kind::kBtrfs:
      return ::syncfs(last) == 0 ? Status{} : Status{sync_error()};
    case Kind::kOther:
      break;
  }
  CARREL_TRY(sync_each(others_));
  const bool synced =
      std::all_of(above.begin(), above.end(), [](int fd) { return ::fsync(fd) == 0; });
  return synced ? Status{} : Status{sync_error()};
}

}  // namespace carrel::storage
