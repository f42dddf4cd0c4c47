#include "storage/workspaces/disk_room.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.h"
#include "kernel/image_mount.h"
#include "storage/background.h"
#include "storage/workspaces/disk_image.h"

namespace carrel::storage {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr char kDiskWatch[] = "disk-watch";
// Less than this is soon filled by somebody else: what is promised gets its blocks at once.
constexpr std::int64_t kPlenty = 4LL << 30;
constexpr std::int64_t kMuch = 16LL << 30;
// What is not worth being given back.
constexpr std::uint64_t kLittle = 16ULL << 20;
constexpr auto kBetweenGivingBack = 10s;
// How many looks in a row at nothing say that nobody comes back.
constexpr int kLastLooks = 4;

bool is_disk_of_a_workspace(const std::string& path) {
  const std::size_t name = path.rfind('/');
  const std::size_t place = name == std::string::npos ? name : path.rfind('/', name - 1);
  return place != std::string::npos && path.compare(name, 5, "/disk") == 0 &&
         path.substr(0, place).ends_with("/workspaces");
}

// What an image's file may still take of the host.
std::uint64_t promised_to(const kernel::BoundImage& image) {
  auto path = read_file_at(AT_FDCWD, "/sys/block/" + image.name + "/loop/backing_file");
  if (!path.ok()) {
    return 0;  // it has just ended
  }
  path->resize(path->find_last_not_of('\n') + 1);
  struct stat file{};
  if (!is_disk_of_a_workspace(*path) || ::stat(path->c_str(), &file) != 0 ||
      file.st_dev != image.device || file.st_ino != image.inode) {
    return 0;
  }
  return unbacked_bytes(file);
}

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

// Has the host give the file all its blocks, or the file system take nothing new. `place` is that
// of a workspace that is mounted, and stays so meanwhile.
Status back(int place, const HostRoom& room) {
  if (room.spare() >= kPlenty || unbacked_bytes(place) == 0) {
    return take_new_data(place, TakesNew::kYes);
  }
  if (room.free >= room.kept + unbacked_bytes(place) && set_aside(place).ok()) {
    return take_new_data(place, TakesNew::kYes);
  }
  Status closed = take_new_data(place, TakesNew::kNo);
  if (!closed.ok()) {
    return Error{Code::kResource, ENOSPC, "the host's disk has no room for what it may still take",
                 "remove something; 'carrel df' tells what takes it, 'carrel prune --dry-run' what "
                 "nobody needs"};
  }
  return {};
}

class DiskWatch {
 public:
  explicit DiskWatch(const Home& home) : home_(&home) {}

  // Until no workspace has been mounted for a few looks.
  Status run() {
    for (int quiet = 0; quiet < kLastLooks && !home_->is_removed();) {
      CARREL_ASSIGN(const HostRoom room, look_at_host_room(home_->directory()));
      CARREL_TRY(look(room));
      quiet = mounted_.empty() ? quiet + 1 : 0;
      std::this_thread::sleep_for(room.spare() >= kMuch ? 500ms : 100ms);
    }
    return give_back(0);
  }

  [[nodiscard]] Result<bool> is_needed() {
    CARREL_TRY(find());
    return !mounted_.empty();
  }

 private:
  // A workspace with a file system of its own.
  struct Disk {
    UniqueFd place;
    ino_t file = 0;
    bool is_mounted = false;
  };

  Status look(const HostRoom& room) {
    CARREL_TRY(find());
    std::vector<UniqueFd> to_sync;
    {
      CARREL_ASSIGN(const UniqueFd lock, lock_room(*home_));
      for (const UniqueFd& place : mounted_) {
        if ((room.spare() >= kPlenty && !was_scarce_) || unbacked_bytes(place.get()) == 0) {
          continue;
        }
        // It may have been unmounted or removed meanwhile; then there is nothing to be done.
        auto top = open_disk(place.get());
        if (top.ok() && back(place.get(), room).ok() && unbacked_bytes(place.get()) != 0) {
          to_sync.push_back(std::move(top.value()));
        }
      }
      was_scarce_ = room.spare() < kPlenty;
    }
    for (const UniqueFd& top : to_sync) {
      (void)!::syncfs(top.get());  // while the host still has what is kept
    }
    if (Clock::now() - gave_back_ >= kBetweenGivingBack) {
      return give_back(room.spare());
    }
    return {};
  }

  Status each_disk(const std::function<void(Disk)>& call) {
    CARREL_ASSIGN(const std::vector<kernel::BoundImage> images, kernel::bound_images());
    auto workspaces =
        open_at(home_->directory(), "workspaces", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!workspaces.ok()) {
      return workspaces.error();
    }
    CARREL_ASSIGN(const std::vector<std::string> names, list_directory(workspaces->get()));
    for (const std::string& name : names) {
      struct stat disk{};
      auto place = open_at(workspaces->get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (!place.ok() || ::fstatat(place->get(), kDiskFile, &disk, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      const bool is_mounted =
          std::any_of(images.begin(), images.end(), [&](const kernel::BoundImage& image) {
            return image.device == disk.st_dev && image.inode == disk.st_ino;
          });
      call(Disk{std::move(place.value()), disk.st_ino, is_mounted});
    }
    return {};
  }

  Status find() {
    mounted_.clear();
    return each_disk([&](Disk disk) {
      if (disk.is_mounted) {
        mounted_.push_back(std::move(disk.place));
      }
    });
  }

  // What was deleted, and what was set aside for those that nobody has mounted any more. One that
  // is mounted keeps its blocks where others would take them.
  Status give_back(std::int64_t hosts_spare) {
    gave_back_ = Clock::now();
    return each_disk([&](const Disk& disk) {
      if (disk.is_mounted && hosts_spare < kPlenty) {
        return;
      }
      const auto spare = spare_bytes(disk.place.get());
      if (spare.ok() && spare.value().at_most >= needed_[disk.file] + kLittle &&
          check_disk(disk.place.get()).ok() && shrink_disk(disk.place.get()).ok()) {
        const auto left = spare_bytes(disk.place.get());
        needed_[disk.file] = left.ok() ? left.value().at_most : 0;
      }
    });
  }

  const Home* home_;
  std::vector<UniqueFd> mounted_;          // the places of those
  std::map<ino_t, std::uint64_t> needed_;  // what looked spare and was not: tables
  bool was_scarce_ = true;                 // what a watch before this one did is not known
  Clock::time_point gave_back_ = Clock::now();
};

}  // namespace

Result<HostRoom> look_at_host_room(int directory) {
  constexpr std::uint64_t kLeastKept = 32ULL << 20;
  constexpr std::uint64_t kMostKept = 1ULL << 30;
  struct statvfs info{};
  struct stat own{};
  if (::fstatvfs(directory, &info) != 0 || ::fstat(directory, &own) != 0) {
    return system_error("look at the room of the host");
  }
  HostRoom room;
  room.free = std::uint64_t{info.f_bavail} * info.f_frsize;
  room.kept = std::clamp(std::uint64_t{info.f_blocks} * info.f_frsize / 50, kLeastKept, kMostKept);
  CARREL_ASSIGN(const std::vector<kernel::BoundImage> images, kernel::bound_images());
  for (const kernel::BoundImage& image : images) {
    room.promised += image.device == own.st_dev ? promised_to(image) : 0;
  }
  return room;
}

Status claim_room(const Home& home, int place) {
  // Two who look at the same room at once would both be promised it.
  CARREL_ASSIGN(const UniqueFd lock, lock_room(home));
  CARREL_ASSIGN(const HostRoom room, look_at_host_room(place));
  return back(place, room);
}

Result<UniqueFd> mount_with_room(const Home& home, int place) {
  CARREL_TRY(repair_disk(place));
  CARREL_ASSIGN(UniqueFd mount, mount_disk(place));
  CARREL_TRY(claim_room(home, place));
  return mount;
}

Status start_disk_watch(const Home& home) {
  return background_is_alive(home, kDiskWatch)
             ? Status{}
             : start_in_background(home, kDiskWatch, Readiness::kLater);
}

int run_disk_watch(const Home& home) {
  while (!home.is_removed()) {
    DiskWatch watch(home);
    {
      const auto lock = lock_background(home, kDiskWatch);
      if (!lock.ok()) {
        return lock.error().code == Code::kConflict ? 0 : 1;
      }
      if (!watch.run().ok()) {
        return 1;
      }
    }
    // One that was mounted just before the lock was given up has started no other watch.
    const auto needed = watch.is_needed();
    if (!needed.ok() || !needed.value()) {
      return needed.ok() ? 0 : 1;
    }
  }
  return 0;
}

}  // namespace carrel::storage
