#include "storage/workspaces/disk_room.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
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
// A file in a workspace's directory: what looked spare after the last time and was not, tables.
constexpr char kNeeded[] = "needed";
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
  if (!is_disk_of_a_workspace(*path)) {
    return 0;
  }
  struct stat file{};
  if (::stat(path->c_str(), &file) == 0 && file.st_dev == image.device &&
      file.st_ino == image.inode) {
    return unbacked_bytes(file);
  }
  // It is where this process cannot see it.
  auto sectors = read_file_at(AT_FDCWD, "/sys/block/" + image.name + "/size");
  return sectors.ok() ? std::strtoull(sectors->c_str(), nullptr, 10) * 512 : 0;
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

// Whether others were there first, or this one was promised it before.
enum class Promise { kNew, kOld };

// Has the host give the file all its blocks, or the file system take nothing new. `place` is that
// of a workspace that is mounted, and stays so meanwhile.
Status secure(int place, const HostRoom& room, Claim claim, Promise promise) {
  const std::uint64_t unbacked = unbacked_bytes(place);
  const bool can_keep =
      room.spare() >= 0 || (promise == Promise::kOld && room.free >= room.kept + unbacked);
  const bool can_stay = room.spare() >= kPlenty && can_close(place);
  if (unbacked == 0 || can_stay ||
      (can_keep && (claim == Claim::kPassing || set_aside(place).ok()))) {
    return take_new_data(place, TakesNew::kYes);
  }
  if (!take_new_data(place, TakesNew::kNo).ok()) {
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
    int failures = 0;
    for (int quiet = 0; quiet < kLastLooks && !home_->is_removed();) {
      auto pause = look();
      if (!pause.ok() && ++failures > kMostFailures) {
        return pause.error();
      }
      failures = pause.ok() ? 0 : failures;
      quiet = pause.ok() && mounted_.empty() ? quiet + 1 : 0;
      std::this_thread::sleep_for(pause.ok() ? pause.value() : 100ms);
    }
    CARREL_TRY(find());
    while (give_one_back()) {
    }
    return {};
  }

  [[nodiscard]] Result<bool> is_needed() {
    CARREL_TRY(find());
    return !mounted_.empty();
  }

 private:
  static constexpr int kMostFailures = 50;

  // Returns when to look again.
  Result<std::chrono::milliseconds> look() {
    CARREL_TRY(find());
    CARREL_ASSIGN(const HostRoom room, look_at_host_room(home_->directory()));
    for (const UniqueFd& place : mounted_) {
      const bool was_closed = is_closed(place.get());
      if (was_closed || (room.spare() < kPlenty && unbacked_bytes(place.get()) != 0)) {
        look_after(place.get(), was_closed);
      }
    }
    if (Clock::now() - gave_back_ >= kBetweenGivingBack) {
      gave_back_ = Clock::now();
      to_give_back_ = large_;
    }
    (void)give_one_back();
    return room.spare() >= kMuch ? 500ms : 100ms;
  }

  // It may be unmounted or removed meanwhile; then there is nothing to be done.
  void look_after(int place, bool was_closed) {
    const auto top = open_disk(place);
    if (!top.ok()) {
      return;
    }
    Status done;
    {
      const auto lock = lock_room(*home_);
      const auto room = look_at_host_room(place);
      if (!lock.ok() || !room.ok()) {
        return;
      }
      done = secure(place, room.value(), Claim::kLasting, Promise::kOld);
    }
    if (!done.ok() || (!was_closed && is_closed(place))) {
      (void)!::syncfs(top.value().get());  // while the host still has what is kept
    }
  }

  // One at a time: others may fill the disk meanwhile.
  bool give_one_back() {
    if (to_give_back_.empty()) {
      return false;
    }
    const std::string name = "workspaces/" + to_give_back_.back();
    to_give_back_.pop_back();
    auto place = open_at(home_->directory(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (place.ok()) {
      (void)give_back_room(*home_, place->get());
    }
    return true;
  }

  Status find() {
    mounted_.clear();
    large_.clear();
    CARREL_ASSIGN(const std::vector<kernel::BoundImage> images, kernel::bound_images());
    CARREL_ASSIGN(const UniqueFd workspaces,
                  open_at(home_->directory(), "workspaces", O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    CARREL_ASSIGN(const std::vector<std::string> names, list_directory(workspaces.get()));
    for (const std::string& name : names) {
      struct stat disk{};
      if (::fstatat(workspaces.get(), (name + "/" + kDiskFile).c_str(), &disk,
                    AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      if (static_cast<std::uint64_t>(disk.st_blocks) * 512 >= kLittle) {
        large_.push_back(name);
      }
      const bool is_mounted =
          std::any_of(images.begin(), images.end(), [&](const kernel::BoundImage& image) {
            return image.device == disk.st_dev && image.inode == disk.st_ino;
          });
      auto place = is_mounted ? open_at(workspaces.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
                              : Result<UniqueFd>(UniqueFd());
      if (place.ok() && place->valid()) {
        mounted_.push_back(std::move(place.value()));
      }
    }
    if (mounted_.empty()) {
      to_give_back_ = large_;
    }
    return {};
  }

  const Home* home_;
  std::vector<UniqueFd> mounted_;   // the places of those
  std::vector<std::string> large_;  // the names of those that may hold too much
  std::vector<std::string> to_give_back_;
  Clock::time_point gave_back_ = Clock::now();
};

void allow_many_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

}  // namespace

Result<HostRoom> look_at_host_room(int directory) {
  constexpr std::uint64_t kLeastKept = 32ULL << 20;
  constexpr std::uint64_t kMostKept = 256ULL << 20;
  struct statvfs info{};
  struct stat own{};
  if (::fstatvfs(directory, &info) != 0 || ::fstat(directory, &own) != 0) {
    return system_error("look at the room of the host");
  }
  HostRoom room;
  room.free = std::uint64_t{info.f_bavail} * info.f_frsize;
  room.kept = std::clamp(std::uint64_t{info.f_blocks} * info.f_frsize / 100, kLeastKept, kMostKept);
  CARREL_ASSIGN(const std::vector<kernel::BoundImage> images, kernel::bound_images());
  for (const kernel::BoundImage& image : images) {
    room.promised += image.device == own.st_dev ? promised_to(image) : 0;
  }
  return room;
}

Status claim_room(const Home& home, int place, Claim claim) {
  // Two who look at the same room at once would both be promised it.
  CARREL_ASSIGN(const UniqueFd lock, lock_room(home));
  CARREL_ASSIGN(const HostRoom room, look_at_host_room(place));
  return secure(place, room, claim, Promise::kNew);
}

Result<UniqueFd> mount_with_room(const Home& home, int place, Claim claim) {
  CARREL_TRY(repair_disk(place));
  CARREL_ASSIGN(UniqueFd mount, mount_disk(place));
  CARREL_TRY(claim_room(home, place, claim));
  return mount;
}

Result<std::uint64_t> give_back_room(const Home& home, int place) {
  CARREL_TRY(check_disk(place));
  CARREL_ASSIGN(const SpareBytes spare, spare_bytes(place));
  auto known = read_file_at(place, kNeeded);
  const std::uint64_t needed = known.ok() ? std::strtoull(known->c_str(), nullptr, 10) : 0;
  if (spare.at_most < needed + kLittle) {
    return std::uint64_t{0};
  }
  CARREL_ASSIGN(const bool was_mounted, is_mounted(place));
  if (was_mounted) {  // what is written meanwhile is little then
    CARREL_ASSIGN(const UniqueFd top, open_disk(place));
    (void)!::syncfs(top.get());
  }
  // CRITICAL: nobody who is promised these blocks may lose them.
  CARREL_ASSIGN(const UniqueFd lock, lock_room(home));
  CARREL_ASSIGN(const HostRoom room, look_at_host_room(place));
  CARREL_ASSIGN(const bool mounted, is_mounted(place));
  if (mounted && room.spare() < kPlenty) {
    return std::uint64_t{0};
  }
  CARREL_ASSIGN(const std::uint64_t given, shrink_disk(place));
  if (const auto left = spare_bytes(place); left.ok()) {
    const std::uint64_t tables = left.value().at_most - left.value().at_least;
    (void)replace_file_at(place, kNeeded, std::to_string(tables), 0600);
  }
  return given;
}

Status start_disk_watch(const Home& home) {
  return background_is_alive(home, kDiskWatch)
             ? Status{}
             : start_in_background(home, kDiskWatch, Readiness::kLater);
}

int run_disk_watch(const Home& home) {
  allow_many_files();
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
