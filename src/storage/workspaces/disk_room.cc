#include "storage/workspaces/disk_room.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <numeric>
#include <string_view>
#include <thread>
#include <utility>

#include "base/files.h"
#include "kernel/image_mount.h"
#include "storage/background.h"
#include "storage/workspaces/disk_image.h"

namespace carrel::storage {

namespace {

constexpr char kDiskWatch[] = "disk-watch";
constexpr std::uint64_t kExtBlock = 4096;
// How many quiet looks in a row say that nobody comes back.
constexpr int kLastLooks = 4;

// A workspace whose file system is mounted.
struct GrowingDisk {
  UniqueFd place;
  std::string device;
  std::uint64_t wanted = 0;  // what its file may still take of the host, in bytes
};

std::string reserve_path(const std::string& device) {
  return "/sys/fs/ext4/" + device + "/reserved_clusters";
}

std::uint64_t number_at(std::string_view text) {
  std::uint64_t number = 0;
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  (void)std::from_chars(text.data() + digits, text.data() + text.size(), number);
  return number;
}

std::uint64_t kibibytes_of(const std::string& meminfo, std::string_view key) {
  const std::size_t at = meminfo.find(key);
  return at == std::string::npos ? 0 : number_at(std::string_view(meminfo).substr(at)) << 10;
}

Result<std::vector<GrowingDisk>> find_growing(const Home& home) {
  std::vector<GrowingDisk> found;
  CARREL_ASSIGN(const std::vector<kernel::BoundImage> images, kernel::bound_images());
  if (images.empty()) {
    return found;
  }
  CARREL_ASSIGN(const UniqueFd workspaces,
                open_at(home.directory(), "workspaces", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  CARREL_ASSIGN(const std::vector<std::string> names, list_directory(workspaces.get()));
  for (const std::string& name : names) {
    struct stat disk{};
    if (::fstatat(workspaces.get(), (name + "/" + kDiskFile).c_str(), &disk, AT_SYMLINK_NOFOLLOW) !=
        0) {
      continue;
    }
    const auto image = std::find_if(images.begin(), images.end(), [&](const auto& one) {
      return one.device == disk.st_dev && one.inode == disk.st_ino;
    });
    if (image == images.end() || !can_share_room(image->name)) {
      continue;  // nobody writes to it, or all of its room is there
    }
    const auto size = static_cast<std::uint64_t>(disk.st_size);
    const std::uint64_t taken = static_cast<std::uint64_t>(disk.st_blocks) * 512;
    auto place = open_at(workspaces.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (place.ok()) {
      found.push_back({std::move(place.value()), image->name, size > taken ? size - taken : 0});
    }
  }
  return found;
}

// What ext4 keeps for itself when it is mounted.
std::uint64_t usual_reserve(const DiskTotals& totals) {
  return std::min<std::uint64_t>(totals.blocks / 50, 4096);
}

Status set_reserve(const std::string& device, std::uint64_t blocks) {
  CARREL_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, reserve_path(device), O_RDWR));
  CARREL_ASSIGN(const std::string now, read_file_at(AT_FDCWD, reserve_path(device)));
  return number_at(now) == blocks ? Status{} : write_all(file.get(), std::to_string(blocks));
}

// Lets it have so many bytes more than it holds, or whatever it wants. Where there is nothing to
// give, what is in memory goes to the disk while the host still has the part that is kept.
Status give_room(const GrowingDisk& disk, const std::uint64_t* bytes) {
  CARREL_ASSIGN(const DiskTotals totals, read_totals(disk.place.get()));
  std::uint64_t reserve = usual_reserve(totals);
  if (bytes != nullptr) {
    CARREL_ASSIGN(const UniqueFd top, open_disk(disk.place.get()));
    struct statvfs info{};
    if (::fstatvfs(top.get(), &info) != 0) {
      return system_error("look at the file system of a workspace");
    }
    const std::uint64_t given = *bytes / kExtBlock + totals.roots_blocks;
    const std::uint64_t left = info.f_bfree > given ? info.f_bfree - given : 0;
    reserve = std::clamp(left, reserve, totals.blocks - 1);
    CARREL_TRY(set_reserve(disk.device, reserve));
    if (*bytes == 0) {
      (void)::syncfs(top.get());
    }
    return {};
  }
  return set_reserve(disk.device, reserve);
}

constexpr std::uint64_t kMuch = 16ULL << 30;

// How long other programs take to fill so much.
std::chrono::milliseconds pause_for(std::uint64_t left) {
  constexpr std::uint64_t kSome = 2ULL << 30;
  return std::chrono::milliseconds(left >= kMuch ? 500 : left >= kSome ? 200 : 30);
}

// Blocks of the host's that nobody can take who fills its disk, for what was taken already and has
// no blocks yet. Given back when there are no others left. It goes with the process.
class LastBlocks {
 public:
  explicit LastBlocks(const Home& home)
      : home_(&home),
        file_(::openat(home.directory(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {}

  void look() {
    auto host = look_at_host_room(*home_);
    if (!host.ok() || !file_.valid()) {
      return;
    }
    if (host->free > host->kept + kStep && size_ < kMostLastBlocks) {
      grow();
    } else if (host->free < kStep && size_ > 0) {
      size_ -= kAtOnce;
      (void)!::ftruncate(file_.get(), size_);
    }
  }

 private:
  static constexpr off_t kAtOnce = 8 << 20;
  static constexpr std::uint64_t kStep = kAtOnce;
  static constexpr off_t kMostLastBlocks = 4 * kAtOnce;

  void grow() {
    if (::fallocate(file_.get(), 0, size_, kAtOnce) == 0) {
      size_ += kAtOnce;
    }
  }

  const Home* home_;
  UniqueFd file_;
  off_t size_ = 0;
};

Result<UniqueFd> lock_room(const Home& home) {
  CARREL_ASSIGN(UniqueFd run,
                open_at(home.directory(), "run", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  while (::flock(run.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return system_error("lock the state directory");
    }
  }
  return run;
}

}  // namespace

Result<HostRoom> look_at_host_room(const Home& home) {
  constexpr std::uint64_t kLeastKept = 32ULL << 20;
  constexpr std::uint64_t kMostKept = 1ULL << 30;
  struct statvfs info{};
  if (::fstatvfs(home.directory(), &info) != 0) {
    return system_error("look at the room of the host");
  }
  HostRoom room;
  room.free = std::uint64_t{info.f_bavail} * info.f_frsize;
  room.kept = std::clamp(std::uint64_t{info.f_blocks} * info.f_frsize / 20, kLeastKept, kMostKept);
  CARREL_ASSIGN(const std::string meminfo, read_file_at(AT_FDCWD, "/proc/meminfo"));
  room.unwritten = kibibytes_of(meminfo, "\nDirty:") + kibibytes_of(meminfo, "\nWriteback:");
  return room;
}

std::vector<std::uint64_t> divide_room(std::uint64_t room,
                                       const std::vector<std::uint64_t>& wanted) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  std::vector<std::uint64_t> given(wanted.size());
  std::size_t others = order.size();
  for (const std::size_t one : order) {
    given[one] = std::min(wanted[one], room / others);
    room -= given[one];
    --others;
  }
  return given;
}

bool can_share_room(const std::string& device) {
  return ::access(reserve_path(device).c_str(), R_OK | W_OK) == 0;
}

Result<std::optional<std::uint64_t>> share_host_room(const Home& home) {
  // Two who divide the same room at once would give it away twice.
  CARREL_ASSIGN(const UniqueFd lock, lock_room(home));
  CARREL_ASSIGN(const std::vector<GrowingDisk> disks, find_growing(home));
  if (disks.empty()) {
    return std::optional<std::uint64_t>();
  }
  CARREL_ASSIGN(const HostRoom host, look_at_host_room(home));
  std::vector<std::uint64_t> wanted;
  for (const GrowingDisk& disk : disks) {
    wanted.push_back(disk.wanted);
  }
  const std::uint64_t all = std::accumulate(wanted.begin(), wanted.end(), std::uint64_t{0});
  const std::uint64_t room = host.free > host.kept ? host.free - host.kept : 0;
  const bool is_enough = all <= room;
  const std::vector<std::uint64_t> given =
      divide_room(room > host.unwritten ? room - host.unwritten : 0, wanted);
  for (std::size_t i = 0; i < disks.size(); ++i) {
    if (Status done = give_room(disks[i], is_enough ? nullptr : &given[i]);
        !done.ok() && can_share_room(disks[i].device)) {  // else it was just unmounted
      return done.error();
    }
  }
  return std::optional(is_enough ? room - all : 0);
}

Status start_disk_watch(const Home& home) {
  return background_is_alive(home, kDiskWatch)
             ? Status{}
             : start_in_background(home, kDiskWatch, Readiness::kLater);
}

int run_disk_watch(const Home& home, int ready) {
  const auto lock = lock_background(home, kDiskWatch);
  (void)!::write(ready, "k", 1);
  ::close(ready);
  if (!lock.ok()) {
    return lock.error().code == Code::kConflict ? 0 : 1;
  }
  LastBlocks last(home);
  for (int quiet = 0; quiet < kLastLooks;) {
    last.look();
    const auto left = share_host_room(home);
    const bool in_use = !left.ok() || left.value().has_value();
    quiet = in_use ? 0 : quiet + 1;
    std::this_thread::sleep_for(pause_for(left.ok() ? left.value().value_or(kMuch) : 0));
  }
  return 0;
}

}  // namespace carrel::storage
