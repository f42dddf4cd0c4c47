#include "storage/workspaces/disk_image.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "kernel/image_mount.h"
#include "storage/workspaces/disk_room.h"

namespace carrel::storage {

namespace {

constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kInodeSize = 256;  // smaller ones have no nanoseconds
constexpr std::uint64_t kGroupBlocks = 32768;
constexpr std::uint64_t kLargest = 4ULL << 40;
constexpr char kDraft[] = "disk.new";
constexpr char kDamaged[] = "damaged";
constexpr int kImageFd = 3;
constexpr char kImagePath[] = "/proc/self/fd/3";
constexpr char kOtherPlace[] = "set CARREL_HOME to a directory with room on ext4, xfs or btrfs";

// Everything that its own settings would say is said here.
constexpr char kFeatures[] =
    "none,has_journal,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,"
    "metadata_csum,dir_nlink,extra_isize";
constexpr char kExtended[] = "nodiscard,lazy_itable_init=1,lazy_journal_init=1";

std::uint64_t bytes_of(const struct stat& file) {
  return static_cast<std::uint64_t>(file.st_blocks) * 512;
}

Error not_here(const std::string& why, std::string hint = {}) {
  return Error{Code::kUnsupported, 0, "make a file system for a workspace: " + why,
               std::move(hint)};
}

std::string find_tool(const std::string& name) {
  for (const char* directory : {"/usr/sbin/", "/sbin/", "/usr/local/sbin/"}) {
    if (::access((directory + name).c_str(), X_OK) == 0) {
      return directory + name;
    }
  }
  return {};
}

// As a percentage with three digits behind the point.
std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  const std::uint64_t thousandths = part * 100'000 / whole;
  std::string digits = std::to_string(thousandths % 1000);
  digits.insert(0, 3 - digits.size(), '0');
  return std::to_string(thousandths / 1000) + "." + digits;
}

std::vector<std::string> words_for(const DiskShape& shape) {
  return {"mke2fs",
          "-q",
          "-F",
          "-b",
          std::to_string(kBlock),
          "-I",
          std::to_string(kInodeSize),
          "-N",
          std::to_string(shape.inodes),
          "-m",
          percent_of(shape.reserved_blocks, shape.blocks),
          "-J",
          "size=" + std::to_string(shape.journal_blocks * kBlock >> 20),
          "-O",
          kFeatures,
          "-E",
          kExtended,
          kImagePath,
          std::to_string(shape.blocks)};
}

// Runs a program of e2fsprogs, which finds the image at kImagePath, and returns its exit status.
Result<int> run_tool(int image, std::vector<std::string> words) {
  const std::string program = find_tool(words.front());
  if (program.empty()) {
    return not_here("this host has no " + words.front(), "install the package e2fsprogs");
  }
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  std::array<char, 32> no_settings{"MKE2FS_CONFIG=/dev/null"};
  std::array<char*, 2> environment = {no_settings.data(), nullptr};
  CARREL_ASSIGN(const UniqueFd null, open_at(AT_FDCWD, "/dev/null", O_RDWR));
  const pid_t child = ::fork();
  if (child < 0) {
    return system_error("start " + words.front());
  }
  if (child == 0) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      if (::dup2(null.get(), standard) < 0) {
        ::_exit(127);
      }
    }
    if (::fcntl(image, F_SETFD, 0) == 0 && (image == kImageFd || ::dup2(image, kImageFd) >= 0)) {
      ::execve(program.c_str(), arguments.data(), environment.data());
    }
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

// Writes an empty file system of that shape to a file that is all zero.
Status run_mke2fs(int image, const DiskShape& shape) {
  CARREL_ASSIGN(const int status, run_tool(image, words_for(shape)));
  return status == 0 ? Status{} : Status{not_here("mke2fs has failed")};
}

// What is not a hole in one file, at the same place in the other.
Status copy_data(int from, int to, off_t size) {
  std::vector<char> buffer(1U << 18);
  off_t at = 0;
  while ((at = ::lseek(from, at, SEEK_DATA)) >= 0) {
    const off_t end = std::min(::lseek(from, at, SEEK_HOLE), size);
    while (at < end) {
      const auto wanted = std::min(buffer.size(), static_cast<std::size_t>(end - at));
      const ssize_t n = ::pread(from, buffer.data(), wanted, at);
      if (n <= 0 || ::pwrite(to, buffer.data(), static_cast<std::size_t>(n), at) != n) {
        return system_error("write the file system of a workspace");
      }
      at += n;
    }
  }
  return errno == ENXIO ? Status{} : Status{system_error("write the file system of a workspace")};
}

// It is made in memory: mke2fs waits for the disk at every step.
Status format(int file, const DiskShape& shape) {
  const auto bytes = static_cast<off_t>(shape.blocks * kBlock);
  const UniqueFd image(::memfd_create("disk", MFD_CLOEXEC));
  if (!image.valid() || ::ftruncate(image.get(), bytes) != 0) {
    return not_here("there is no such large file in memory");
  }
  CARREL_TRY(run_mke2fs(image.get(), shape));
  return copy_data(image.get(), file, bytes);
}

// CRITICAL: what the host gave has to stay, also when it is written again. File systems that write
// every block elsewhere do not promise that; btrfs does if it is told for an empty file.
Status keep_in_place(int file) {
  constexpr unsigned kXfs = 0x58465342;
  struct statfs info{};
  if (::fstatfs(file, &info) != 0) {
    return system_error("look at the room for a workspace");
  }
  const auto type = static_cast<unsigned>(info.f_type);
  if (type == EXT4_SUPER_MAGIC || type == kXfs) {
    return {};
  }
  unsigned flags = 0;
  if (type != BTRFS_SUPER_MAGIC || ::ioctl(file, FS_IOC_GETFLAGS, &flags) != 0) {
    return not_here("its place is not ext4, xfs or btrfs", kOtherPlace);
  }
  flags |= FS_NOCOW_FL;
  return ::ioctl(file, FS_IOC_SETFLAGS, &flags) == 0
             ? Status{}
             : Status{not_here("btrfs would write it elsewhere each time")};
}

// Whether the host can promise so much, and has as much again.
Status check_room(int directory, std::uint64_t bytes) {
  CARREL_ASSIGN(const HostRoom room, look_at_host_room(directory));
  const std::uint64_t left = room.free > room.promised ? room.free - room.promised : 0;
  return left / 2 >= bytes ? Status{}
                           : Status{not_here("the host has not twice its size free", kOtherPlace)};
}

Status fill_draft(int directory, const DiskShape& shape) {
  const std::uint64_t bytes = shape.blocks * kBlock;
  CARREL_TRY(check_room(directory, bytes));
  CARREL_ASSIGN(const UniqueFd file, open_at(directory, kDraft, O_RDWR | O_CREAT | O_EXCL, 0600));
  CARREL_TRY(keep_in_place(file.get()));
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return not_here("there is no such large file");
  }
  CARREL_TRY(format(file.get(), shape));
  return ::fsync(file.get()) == 0 ? Status{} : Status{system_error("sync a workspace")};
}

// The loop device that the file has now; empty: none.
Result<std::string> device_of(int directory, const char* name) {
  struct stat file{};
  if (::fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("look at the file system of a workspace");
  }
  CARREL_ASSIGN(const std::vector<kernel::BoundImage> images, kernel::bound_images());
  const auto found = std::find_if(images.begin(), images.end(), [&](const auto& image) {
    return image.device == file.st_dev && image.inode == file.st_ino;
  });
  return found == images.end() ? std::string() : found->name;
}

Result<std::string> reserve_path(int directory) {
  CARREL_ASSIGN(const std::string device, device_of(directory, kDiskFile));
  return "/sys/fs/ext4/" + device + "/reserved_clusters";
}

// That it can be mounted is known only when it was.
Result<UniqueFd> open_draft(int directory) {
  auto mount = kernel::mount_image(directory, kDraft);
  if (!mount.ok()) {
    return not_here(mount.error().to_string(),
                    "it takes ext4 and loop devices: 'modprobe loop', and /dev/loop-control");
  }
  // As root, whoever makes a fork's overlay has an id in it that is not root's.
  CARREL_ASSIGN(UniqueFd top, open_at(mount->get(), ".", O_RDONLY | O_DIRECTORY));
  if (::fchmod(top.get(), 0711) != 0 || ::unlinkat(top.get(), "lost+found", AT_REMOVEDIR) != 0) {
    return system_error("prepare the file system of a workspace");
  }
  return top;
}

Result<UniqueFd> make_draft(int directory, const DiskShape& shape) {
  CARREL_TRY(fill_draft(directory, shape));
  CARREL_ASSIGN(UniqueFd top, open_draft(directory));
  if (::renameat(directory, kDraft, directory, kDiskFile) != 0) {
    return system_error("keep the file system of a workspace");
  }
  return top;
}

}  // namespace

DiskShape shape_of_disk(std::uint64_t bytes) {
  constexpr std::uint64_t kLeastFiles = 1024;
  constexpr std::uint64_t kMostFiles = 1U << 20;
  constexpr std::uint64_t kOwnInodes = 32;      // the file system's, and the host's
  constexpr std::uint64_t kLeastBlocks = 2560;  // for less there is no journal
  DiskShape shape;
  const std::uint64_t data = (bytes + kBlock - 1) / kBlock;
  shape.inodes = std::clamp(data, kLeastFiles, kMostFiles) + kOwnInodes;
  shape.journal_blocks = bytes >= (256U << 20) ? 2048 : 1024;
  shape.reserved_blocks = std::max<std::uint64_t>(256, data / 128);
  const std::uint64_t tables = shape.inodes * kInodeSize / kBlock + 1;
  const std::uint64_t used = data + shape.journal_blocks + shape.reserved_blocks + tables;
  // Bitmaps and copies of the descriptors, in each group.
  const std::uint64_t groups = used / kGroupBlocks + 2;
  shape.blocks = used + 32 + groups * (8 + groups / 1024);
  // The kernel keeps a fiftieth, and not more than this, for itself.
  shape.blocks += std::min<std::uint64_t>(shape.blocks / 49 + 1, 4096);
  if (shape.blocks < kLeastBlocks) {
    shape.reserved_blocks += kLeastBlocks - shape.blocks;
    shape.blocks = kLeastBlocks;
  }
  return shape;
}

Result<UniqueFd> make_disk(int directory, std::uint64_t bytes) {
  if (::geteuid() != 0) {
    return not_here("that takes root");
  }
  if (bytes == 0 || bytes > kLargest) {
    return not_here("it has no size for that");
  }
  Result<UniqueFd> made = make_draft(directory, shape_of_disk(bytes));
  if (!made.ok()) {
    ::unlinkat(directory, kDraft, 0);
  }
  return made;
}

Result<DiskTotals> read_totals(int directory) {
  constexpr off_t kSuperblock = 1024;
  constexpr std::size_t kBlocksAt = 0x4;
  constexpr std::size_t kFreeAt = 0xC;
  constexpr std::size_t kErrorsAt = 0x194;
  constexpr std::size_t kOwnAt = 0x248;
  std::array<unsigned char, 1024> bytes{};
  CARREL_ASSIGN(const UniqueFd file, open_at(directory, kDiskFile, O_RDONLY | O_NOFOLLOW));
  if (::pread(file.get(), bytes.data(), bytes.size(), kSuperblock) !=
      static_cast<ssize_t>(bytes.size())) {
    return system_error("read the file system of a workspace");
  }
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      value |= std::uint64_t{bytes[at + i]} << (8 * i);
    }
    return value;
  };
  return DiskTotals{.blocks = number(kBlocksAt),
                    .free_blocks = number(kFreeAt),
                    .own_blocks = number(kOwnAt),
                    .errors = number(kErrorsAt)};
}

Status repair_disk(int directory) {
  constexpr int kMended = 3;  // e2fsck's bits for what it has put right
  CARREL_ASSIGN(DiskTotals totals, read_totals(directory));
  if (totals.errors == 0) {
    return {};
  }
  // CRITICAL: nobody may mount it meanwhile. Who mounts it takes this lock, too.
  CARREL_ASSIGN(const UniqueFd locked, open_at(directory, kDiskFile, O_RDONLY | O_NOFOLLOW));
  while (::flock(locked.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return system_error("lock the file system of a workspace");
    }
  }
  CARREL_ASSIGN(totals, read_totals(directory));
  CARREL_ASSIGN(const std::string device, device_of(directory, kDiskFile));
  if (totals.errors == 0 || !device.empty()) {
    return {};
  }
  CARREL_TRY(replace_file_at(directory, kDamaged, "", 0600));
  CARREL_ASSIGN(const UniqueFd image, open_at(directory, kDiskFile, O_RDWR | O_NOFOLLOW));
  CARREL_ASSIGN(const int status, run_tool(image.get(), {"e2fsck", "-f", "-y", kImagePath}));
  return (status & ~kMended) == 0
             ? Status{}
             : Status{Error{Code::kSystem, 0, "e2fsck cannot repair it",
                            "remove the workspace; its snapshots can be forked before that"}};
}

void forget_damage(int directory) { ::unlinkat(directory, kDamaged, 0); }

Status check_disk(int directory) {
  CARREL_ASSIGN(const DiskTotals totals, read_totals(directory));
  CARREL_ASSIGN(const std::string device, device_of(directory, kDiskFile));
  // What is known now may not have reached the file.
  auto known = read_file_at(AT_FDCWD, "/sys/fs/ext4/" + device + "/errors_count");
  if (totals.errors == 0 && ::faccessat(directory, kDamaged, F_OK, 0) != 0 &&
      (device.empty() || !known.ok() || known.value() == "0\n")) {
    return {};
  }
  return Error{Code::kConflict, 0,
               "something that was written to it is lost: the host's disk was full or has failed",
               "go back to a snapshot with 'carrel restore', or go on with 'carrel fork --from'"};
}

std::uint64_t unbacked_bytes(const struct stat& file) {
  const auto size = static_cast<std::uint64_t>(file.st_size);
  return size - std::min(size, bytes_of(file));
}

std::uint64_t unbacked_bytes(int directory) {
  struct stat file{};
  return ::fstatat(directory, kDiskFile, &file, AT_SYMLINK_NOFOLLOW) == 0 ? unbacked_bytes(file)
                                                                          : 0;
}

Status set_aside(int directory) {
  CARREL_ASSIGN(const UniqueFd file, open_at(directory, kDiskFile, O_RDWR | O_NOFOLLOW));
  struct stat info{};
  return ::fstat(file.get(), &info) == 0 && ::fallocate(file.get(), 0, 0, info.st_size) == 0
             ? Status{}
             : Status{system_error("set aside the room of a workspace")};
}

Result<bool> is_mounted(int directory) {
  CARREL_ASSIGN(const std::string device, device_of(directory, kDiskFile));
  return !device.empty();
}

Status take_new_data(int directory, TakesNew takes) {
  CARREL_ASSIGN(const DiskTotals totals, read_totals(directory));
  CARREL_ASSIGN(const std::string path, reserve_path(directory));
  // What ext4 keeps for itself when it is mounted.
  const std::uint64_t usual = std::min<std::uint64_t>(totals.blocks / 50, 4096);
  const std::string wanted = std::to_string(takes == TakesNew::kYes ? usual : totals.blocks - 1);
  auto now = read_file_at(AT_FDCWD, path);
  if (now.ok() ? now.value() == wanted + "\n" : takes == TakesNew::kYes) {
    return {};
  }
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, path, O_WRONLY));
  return write_all(file.get(), wanted);
}

bool can_close(int directory) {
  const auto path = reserve_path(directory);
  return path.ok() && ::access(path.value().c_str(), W_OK) == 0;
}

bool is_closed(int directory) {
  const auto totals = read_totals(directory);
  const auto path = reserve_path(directory);
  auto now = path.ok() ? read_file_at(AT_FDCWD, path.value()) : Result<std::string>(path.error());
  return totals.ok() && now.ok() && now.value() == std::to_string(totals.value().blocks - 1) + "\n";
}

Result<SpareBytes> spare_bytes(int directory) {
  struct stat file{};
  if (::fstatat(directory, kDiskFile, &file, AT_SYMLINK_NOFOLLOW) != 0) {
    return system_error("look at the file system of a workspace");
  }
  CARREL_ASSIGN(const DiskTotals totals, read_totals(directory));
  std::uint64_t free = totals.free_blocks;
  CARREL_ASSIGN(const std::string device, device_of(directory, kDiskFile));
  if (!device.empty()) {
    CARREL_ASSIGN(const UniqueFd top, open_disk(directory));
    struct statvfs now{};
    if (::fstatvfs(top.get(), &now) != 0) {
      return system_error("look at the file system of a workspace");
    }
    free = now.f_bfree;
  }
  const std::uint64_t used = totals.blocks - std::min(totals.blocks, free);
  const std::uint64_t files = used - std::min(used, totals.own_blocks);
  const std::uint64_t held = bytes_of(file);
  return SpareBytes{held - std::min(held, used * kBlock), held - std::min(held, files * kBlock)};
}

Result<std::uint64_t> shrink_disk(int directory) {
  const std::uint64_t before = unbacked_bytes(directory);
  CARREL_ASSIGN(const UniqueFd top, open_disk(directory));
  fstrim_range groups{};  // whole ones: after that ext4 forgets what it has trimmed before
  groups.len = ~std::uint64_t{0};
  groups.minlen = kGroupBlocks * kBlock;
  fstrim_range all{};
  all.len = ~std::uint64_t{0};
  // What was deleted is free only when the journal says so.
  if (::syncfs(top.get()) != 0) {
    return system_error("shrink the file system of a workspace");
  }
  (void)::ioctl(top.get(), FITRIM, &groups);
  if (::ioctl(top.get(), FITRIM, &all) != 0) {
    return system_error("shrink the file system of a workspace");
  }
  const std::uint64_t after = unbacked_bytes(directory);
  return after - std::min(before, after);
}

bool has_disk(int directory) { return ::faccessat(directory, kDiskFile, F_OK, 0) == 0; }

Result<UniqueFd> mount_disk(int directory) { return kernel::mount_image(directory, kDiskFile); }

Result<UniqueFd> open_disk(int directory) {
  CARREL_ASSIGN(const UniqueFd mount, mount_disk(directory));
  return open_at(mount.get(), ".", O_RDONLY | O_DIRECTORY);
}

}  // namespace carrel::storage
