#include "storage/workspaces/inode_tables.h"

#include <fcntl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/files.h"

namespace carrel::storage {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kBlockSize = 4096;
constexpr std::uint64_t kTableInodeSize = 256;
constexpr std::uint64_t kInodesInBlock = kBlockSize / kTableInodeSize;

// Where the superblock has what.
constexpr std::size_t kSuperblock = 1024;
constexpr std::size_t kInodesCount = 0;
constexpr std::size_t kFirstBlock = 20;
constexpr std::size_t kLogBlockSize = 24;
constexpr std::size_t kInodesPerGroup = 40;
constexpr std::size_t kMagicAt = 56;
constexpr std::size_t kInodeSizeAt = 88;
constexpr std::size_t kIncompatible = 96;
constexpr std::uint16_t kMagic = 0xef53;
// File types in names, a journal to be played back (as long as it is mounted), extents, and groups
// that have their tables together. With others the tables could be elsewhere or look different.
constexpr std::uint32_t kKnown = 0x2 | 0x4 | 0x40 | 0x200;

// A group's descriptor, and what is where in it.
constexpr std::size_t kDescriptor = 32;
constexpr std::size_t kTable = 8;

// An inode.
constexpr std::size_t kMode = 0;
constexpr std::size_t kSizeLow = 4;
constexpr std::size_t kChanged = 12;
constexpr std::size_t kModified = 16;
constexpr std::size_t kNames = 26;
constexpr std::size_t kSizeHigh = 108;
constexpr std::size_t kExtraSize = 128;
constexpr std::size_t kChangedExtra = 132;
constexpr std::size_t kModifiedExtra = 136;
constexpr std::uint16_t kLeastExtra = 12;  // up to the last of those

template <typename T>
T number_at(const char* data, std::size_t at) {
  T value{};
  std::memcpy(&value, data + at, sizeof value);
  return value;
}

// Signed seconds with two more bits, and nanoseconds above those.
timespec time_at(const char* inode, std::size_t seconds, std::size_t extra) {
  const auto more = number_at<std::uint32_t>(inode, extra);
  timespec time{};
  time.tv_sec = number_at<std::int32_t>(inode, seconds) +
                static_cast<time_t>(std::uint64_t{more & 3U} << 32U);
  time.tv_nsec = static_cast<long>(more >> 2U);
  return time;
}

bool read_at(int device, std::uint64_t at, char* data, std::size_t size) {
  return ::pread(device, data, size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
}

// The device that a file system is on.
UniqueFd open_device(int tree) {
  struct stat info{};
  if (::fstat(tree, &info) != 0) {
    return {};
  }
  const std::string facts = "/sys/dev/block/" + std::to_string(major(info.st_dev)) + ":" +
                            std::to_string(minor(info.st_dev)) + "/uevent";
  auto text = read_file_at(AT_FDCWD, facts, 4096);
  constexpr char kName[] = "DEVNAME=";
  const std::size_t begins = text.ok() ? text->find(kName) : std::string::npos;
  if (begins == std::string::npos) {
    return {};
  }
  const std::size_t name = begins + sizeof kName - 1;
  const std::string path = "/dev/" + text->substr(name, text->find('\n', name) - name);
  UniqueFd device(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found{};
  // CRITICAL: /dev may be anything; what is read is the file system that the tree is on.
  const bool same = device.valid() && ::fstat(device.get(), &found) == 0 &&
                    S_ISBLK(found.st_mode) && found.st_rdev == info.st_dev;
  return same ? std::move(device) : UniqueFd();
}

}  // namespace

std::optional<InodeTables> InodeTables::open(int tree) {
  InodeTables tables;
  tables.device_ = open_device(tree);
  std::array<char, 1024> super{};
  if (!tables.device_.valid() ||
      !read_at(tables.device_.get(), kSuperblock, super.data(), super.size())) {
    return std::nullopt;
  }
  const auto inodes = number_at<std::uint32_t>(super.data(), kInodesCount);
  tables.inodes_in_group_ = number_at<std::uint32_t>(super.data(), kInodesPerGroup);
  if (number_at<std::uint16_t>(super.data(), kMagicAt) != kMagic ||
      number_at<std::uint32_t>(super.data(), kFirstBlock) != 0 ||
      number_at<std::uint32_t>(super.data(), kLogBlockSize) != 2 ||
      number_at<std::uint16_t>(super.data(), kInodeSizeAt) != kTableInodeSize ||
      (number_at<std::uint32_t>(super.data(), kIncompatible) & ~kKnown) != 0 ||
      tables.inodes_in_group_ == 0 || tables.inodes_in_group_ % kInodesInBlock != 0) {
    return std::nullopt;
  }
  const std::size_t groups = (inodes + tables.inodes_in_group_ - 1) / tables.inodes_in_group_;
  std::string descriptors(groups * kDescriptor, '\0');
  if (!read_at(tables.device_.get(), kBlockSize, descriptors.data(), descriptors.size())) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < groups; ++i) {
    tables.tables_.push_back(
        number_at<std::uint32_t>(descriptors.data(), i * kDescriptor + kTable));
  }
  return tables;
}

std::optional<struct stat> InodeTables::Reader::look(std::uint64_t inode) {
  const std::uint64_t group = (inode - 1) / tables_->inodes_in_group_;
  if (inode == 0 || group >= tables_->tables_.size() || tables_->tables_[group] == 0) {
    return std::nullopt;
  }
  const std::uint64_t place = (inode - 1) % tables_->inodes_in_group_;
  const std::uint64_t block = tables_->tables_[group] + place / kInodesInBlock;
  if (block != block_) {
    block_ = 0;
    if (!read_at(tables_->device_.get(), block * kBlockSize, data_.data(), data_.size())) {
      return std::nullopt;
    }
    block_ = block;
  }
  const char* raw = data_.data() + place % kInodesInBlock * kTableInodeSize;
  struct stat info{};
  info.st_ino = inode;
  info.st_mode = number_at<std::uint16_t>(raw, kMode);
  info.st_nlink = number_at<std::uint16_t>(raw, kNames);
  if (info.st_nlink == 0 || number_at<std::uint16_t>(raw, kExtraSize) < kLeastExtra) {
    return std::nullopt;
  }
  info.st_size = static_cast<off_t>(number_at<std::uint32_t>(raw, kSizeLow) |
                                    std::uint64_t{number_at<std::uint32_t>(raw, kSizeHigh)} << 32U);
  info.st_ctim = time_at(raw, kChanged, kChangedExtra);
  info.st_mtim = time_at(raw, kModified, kModifiedExtra);
  return info;
}

}  // namespace carrel::storage
