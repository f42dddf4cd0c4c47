#include "bench/loop_disk.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <utility>

#include "base/files.h"
#include "bench/process.h"
#include "bench/setup.h"

namespace carrel::bench {

namespace {

// Room for workspaces with disks of their own; a hole until it is written to.
constexpr off_t kSize = off_t{64} << 30;

Status make_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || ::ftruncate(file.get(), kSize) != 0) {
    return system_error("make '" + path + "'");
  }
  return {};
}

}  // namespace

LoopDisk::LoopDisk(std::string image, std::string place)
    : image_(std::move(image)), place_(std::move(place)) {}

LoopDisk::LoopDisk(LoopDisk&& other) noexcept
    : image_(std::exchange(other.image_, {})), place_(std::exchange(other.place_, {})) {}

LoopDisk::~LoopDisk() {
  if (!place_.empty()) {
    (void)::umount2(place_.c_str(), MNT_DETACH);
  }
  if (!image_.empty()) {
    (void)::unlink(image_.c_str());
  }
}

Result<LoopDisk> LoopDisk::make(const std::string& image, const std::string& place,
                                const User& owner) {
  const std::string mkfs = find_program("mkfs.btrfs");
  if (mkfs.empty()) {
    return Error{
        Code::kUnsupported, 0, "mkfs.btrfs is not installed (the package btrfs-progs)", {}};
  }
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return system_error("enter a mount namespace");
  }
  LoopDisk disk(image, {});
  CARREL_TRY(make_file(image));
  CARREL_TRY(output_of(plain_launch({mkfs, "-q", image})));
  CARREL_TRY(make_directories(place, 0700));
  CARREL_TRY(output_of(plain_launch({find_program("mount"), "-o", "loop", image, place})));
  disk.place_ = place;
  if (::chmod(place.c_str(), 0700) != 0 || ::chown(place.c_str(), owner.uid, owner.gid) != 0) {
    return system_error("close '" + place + "'");
  }
  return disk;
}

std::string file_system_of(const std::string& path) {
  struct statfs info{};
  if (::statfs(path.c_str(), &info) != 0) {
    return "an unknown file system";
  }
  switch (static_cast<unsigned long>(info.f_type)) {
    case EXT4_SUPER_MAGIC:
      return "ext4";
    case XFS_SUPER_MAGIC:
      return "xfs";
    case BTRFS_SUPER_MAGIC:
      return "btrfs already";
    case TMPFS_MAGIC:
      return "tmpfs";
    case OVERLAYFS_SUPER_MAGIC:
      return "an overlay";
    default:
      return "another file system";
  }
}

}  // namespace carrel::bench
