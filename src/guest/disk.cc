#include "guest/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/proc.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

constexpr char kWorkspace[] = "/workspace";
constexpr std::uint64_t kQuickUs = 20'000;
// A whole walk is due after this long, or when the file system lost this much of its room.
constexpr std::uint64_t kWalkUs = 2'000'000;
constexpr std::uint64_t kToldUs = 200'000;
constexpr std::uint64_t kLeastGrowth = 1U << 20;
constexpr int kDeepest = 200;
constexpr std::uint64_t kMostEntries = 1U << 20;

std::uint64_t bytes_of(const struct stat& info) {
  std::uint64_t bytes = static_cast<std::uint64_t>(info.st_blocks) * 512;
  // Each name of a file has its share, so that together they are the whole.
  return S_ISREG(info.st_mode) && info.st_nlink > 1 ? bytes / info.st_nlink : bytes;
}

struct Walk {
  dev_t device = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t most = 0;  // entries; a walk through more of them would keep the guest too long
  bool too_much = false;
};

// What the owner cannot look into would hide its size: it is opened for the moment.
int open_any_directory(int parent, const char* name, mode_t mode) {
  if ((mode & 0500) != 0500) {
    fchmodat(parent, name, (mode & 07777) | 0700, 0);
  }
  return open_directory(parent, name);
}

void walk_directory(int fd, int depth, Walk& walk) {
  DIR* directory = fdopendir(fd);
  if (directory == nullptr) {
    close(fd);
    return;
  }
  while (struct dirent* entry = readdir(directory)) {
    std::string_view name(entry->d_name);
    struct stat info{};
    if (name == "." || name == ".." ||
        fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || info.st_dev != walk.device) {
      continue;
    }
    walk.bytes += bytes_of(info);
    if (++walk.entries > walk.most || depth >= kDeepest) {
      walk.too_much = true;
      break;
    }
    if (!S_ISDIR(info.st_mode)) {
      continue;
    }
    int next = open_any_directory(fd, entry->d_name, info.st_mode);
    if (next < 0) {
      continue;
    }
    walk_directory(next, depth + 1, walk);
    if ((info.st_mode & 0500) != 0500) {
      fchmodat(fd, entry->d_name, info.st_mode & 07777, 0);
    }
    if (walk.too_much) {
      break;
    }
  }
  closedir(directory);
}

// Files without a name that somebody still holds.
void add_nameless(Walk& walk) {
  each_pid([&](pid_t pid) {
    Text<64> path;
    path.add("/proc/").add_number(static_cast<std::uint64_t>(pid)).add("/fd");
    DIR* directory = pid > 1 ? opendir(path.c_str()) : nullptr;
    if (directory == nullptr) {
      return;
    }
    while (struct dirent* entry = readdir(directory)) {
      struct stat info{};
      if (entry->d_name[0] != '.' && fstatat(dirfd(directory), entry->d_name, &info, 0) == 0 &&
          S_ISREG(info.st_mode) && info.st_nlink == 0 && info.st_dev == walk.device) {
        walk.bytes += bytes_of(info);
      }
    }
    closedir(directory);
  });
}

// How much the workspace takes. With more files than a tmpfs of that size could have, or at a depth
// that nobody needs, more than its limit.
std::uint64_t look_at_workspace(std::uint64_t limit) {
  Walk walk;
  std::uint64_t pages = limit / 4096;
  walk.most = pages < 1024 ? 1024 : pages > kMostEntries ? kMostEntries : pages;
  struct stat info{};
  int top = openat(AT_FDCWD, kWorkspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (top < 0 || fstat(top, &info) != 0) {
    return 0;
  }
  walk.device = info.st_dev;
  walk_directory(top, 0, walk);
  add_nameless(walk);
  return walk.too_much && walk.bytes <= limit ? limit + 1 : walk.bytes;
}

std::uint64_t room_left() {
  struct statfs info{};
  return statfs(kWorkspace, &info) == 0
             ? static_cast<std::uint64_t>(info.f_bfree) * static_cast<std::uint64_t>(info.f_bsize)
             : 0;
}

}  // namespace

DiskUse look_at_disk(Guest& guest, std::uint64_t now) {
  const std::uint64_t limit = guest.boot.disk_watch_bytes;
  if (limit == 0) {
    struct statfs info{};
    if (statfs(kWorkspace, &info) != 0) {
      return {};
    }
    const auto block = static_cast<std::uint64_t>(info.f_bsize);
    return {(info.f_blocks - info.f_bfree) * block, info.f_blocks * block};
  }
  DiskWatch& watch = guest.disk;
  if (watch.tell_us == 0 || now >= watch.tell_us) {
    watch.told = look_at_workspace(limit);
    const std::uint64_t cost = now_us() - now;
    watch.tell_us = now + (kToldUs > 50 * cost ? kToldUs : 50 * cost);
  }
  return {watch.told, limit};
}

bool watch_disk(Guest& guest, std::uint64_t now) {
  DiskWatch& watch = guest.disk;
  if (now < watch.next_us) {
    return false;
  }
  const std::uint64_t limit = guest.boot.disk_watch_bytes;
  const std::uint64_t room = room_left();
  const std::uint64_t spare = watch.used < limit ? (limit - watch.used) / 2 : 0;
  const std::uint64_t grown = watch.room > room ? watch.room - room : 0;
  watch.next_us = now + kQuickUs;
  if (now < watch.walk_us && grown < (spare > kLeastGrowth ? spare : kLeastGrowth)) {
    return true;
  }
  const bool first = watch.walk_us == 0;
  watch.used = look_at_workspace(limit);
  watch.room = room;
  // A large workspace takes its time: most of it is left to others.
  const std::uint64_t cost = now_us() - now;
  watch.next_us = now + cost + (kQuickUs > 10 * cost ? kQuickUs : 10 * cost);
  watch.walk_us = now + (kWalkUs > 50 * cost ? kWalkUs : 50 * cost);
  if (watch.used <= limit) {
    watch.kept = 0;
    return true;
  }
  // Files outlive their makers: afterwards a command may clean up, and not add to them.
  if (first) {
    watch.kept = watch.used + kLeastGrowth;
  } else if (watch.used > watch.kept) {
    flag_running(guest, protocol::kExitDiskLimit);
    kill(-1, SIGKILL);
    watch.used = look_at_workspace(limit);
    watch.kept = watch.used + kLeastGrowth;
    watch.room = room_left();
  }
  return true;
}

}  // namespace carrel::guest
