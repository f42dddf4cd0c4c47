#include "storage/workspaces/tree_watch.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/inotify.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"

namespace carrel::storage {

namespace {

constexpr long kXfs = 0x58465342;
// The host has a number of them for each user, and others want some, too.
constexpr std::size_t kMostDirectories = 8192;
constexpr std::size_t kLargestList = 4U << 20;
constexpr std::uint32_t kChanges = IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE |
                                   IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF;
// The tree has other directories than it had, or not everything was told.
constexpr std::uint32_t kTooMuch =
    IN_Q_OVERFLOW | IN_IGNORED | IN_UNMOUNT | IN_DELETE_SELF | IN_MOVE_SELF;
constexpr std::uint32_t kNames = IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO;

// Follows the names that came to be. Each may be a further name of a file that is elsewhere in the
// tree: one that is still there is met by the walk, and one that is gone again could have been
// written through without a trace at the file's other name.
class NewNames {
 public:
  // False: what has happened cannot be told.
  bool take(const inotify_event& event, std::string name) {
    if ((event.mask & kNames) == 0) {
      return true;
    }
    const Name place(event.wd, std::move(name));
    switch (event.mask & kNames) {
      case IN_CREATE:
        return names_.emplace(place, Came::kMade).second;
      case IN_DELETE:
        return !names_.contains(place);
      case IN_MOVED_FROM:
        return leave(place, event.cookie);
      default:
        return arrive(place, event.cookie);
    }
  }
  // One that was moved to where nobody looks may be anything now.
  [[nodiscard]] bool are_known() const {
    for (const auto& [cookie, is_new] : moving_) {
      if (is_new) {
        return false;
      }
    }
    return true;
  }

 private:
  using Name = std::pair<int, std::string>;
  enum class Came { kMade, kMoved };
  // Two names that are exchanged are told as two moves, one after the other: of a name that came by
  // one it is not known which file leaves with the next.
  bool leave(const Name& place, std::uint32_t cookie) {
    const auto found = names_.find(place);
    const bool is_new = found != names_.end();
    if (is_new && found->second == Came::kMoved) {
      return false;
    }
    moving_[cookie] = is_new;
    if (is_new) {
      names_.erase(found);
    }
    return true;
  }
  bool arrive(const Name& place, std::uint32_t cookie) {
    const auto from = moving_.find(cookie);
    const bool is_new = from == moving_.end() || from->second;
    if (from != moving_.end()) {
      moving_.erase(from);
    }
    // What it took the place of is gone.
    return !names_.contains(place) && (!is_new || names_.emplace(place, Came::kMoved).second);
  }

  std::map<Name, Came> names_;
  std::map<std::uint32_t, bool> moving_;  // by cookie: whether it is a new name
};

// The number after `key` in a line of /proc.
std::optional<std::uint64_t> number_after(std::string_view line, std::string_view key, int base) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  line.remove_prefix(at + key.size());
  std::uint64_t value = 0;
  const auto read = std::from_chars(line.data(), line.data() + line.size(), value, base);
  return read.ec == std::errc() ? std::optional(value) : std::nullopt;
}

struct Watched {
  int number = 0;
  std::uint64_t inode = 0;
  std::uint64_t device = 0;
};

// What the kernel says that a descriptor watches.
std::vector<Watched> list_watched(int events) {
  constexpr int kHex = 16;
  const auto text =
      read_file_at(AT_FDCWD, "/proc/self/fdinfo/" + std::to_string(events), kLargestList);
  std::vector<Watched> all;
  std::string_view rest = text.ok() ? std::string_view(text.value()) : std::string_view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (!line.starts_with("inotify ")) {
      continue;
    }
    const auto number = number_after(line, "wd:", kHex);
    const auto inode = number_after(line, "ino:", kHex);
    const auto device = number_after(line, "sdev:", kHex);
    const auto mask = number_after(line, " mask:", kHex);
    if (!number || !inode || !device || !mask || (*mask & kChanges) != kChanges) {
      return {};
    }
    all.push_back({static_cast<int>(*number), *inode, *device});
  }
  return all;
}

// Those of which it is known that all changes pass through this host's inodes.
bool tells_everything(int tree) {
  struct statfs info{};
  if (::fstatfs(tree, &info) != 0) {
    return false;
  }
  const auto type = static_cast<long>(info.f_type);
  return type == EXT4_SUPER_MAGIC || type == BTRFS_SUPER_MAGIC || type == kXfs;
}

}  // namespace

TreeWatch::TreeWatch(TreeWatch&& other) noexcept
    : events_(std::move(other.events_)),
      good_(other.good_.load()),
      added_(other.added_.load()),
      silent_(other.silent_),
      quiet_(std::move(other.quiet_)) {}

std::optional<TreeWatch> TreeWatch::begin(int tree) {
  UniqueFd events(tells_everything(tree) ? ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK) : -1);
  return events.valid() ? std::optional(TreeWatch(std::move(events))) : std::nullopt;
}

std::optional<TreeWatch> TreeWatch::resume(UniqueFd events) {
  TreeWatch watch(std::move(events));
  return watch.hear() ? std::optional(std::move(watch)) : std::nullopt;
}

bool TreeWatch::hear() {
  std::unordered_set<int> told;
  NewNames names;
  alignas(inotify_event) std::array<char, 64U << 10> piece;
  for (;;) {
    const ssize_t n = ::read(events_.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      break;
    }
    if (n <= 0) {
      return false;
    }
    for (std::size_t at = 0; at < static_cast<std::size_t>(n);) {
      inotify_event event{};
      std::memcpy(&event, piece.data() + at, sizeof event);
      const char* name = piece.data() + at + sizeof event;
      at += sizeof event + event.len;
      if ((event.mask & kTooMuch) != 0 ||
          ((event.mask & IN_ISDIR) != 0 && (event.mask & kNames) != 0) ||
          !names.take(event, std::string(name, ::strnlen(name, event.len)))) {
        return false;
      }
      told.insert(event.wd);
    }
  }
  if (!names.are_known()) {
    return false;
  }
  silent_ = told.empty();
  const std::vector<Watched> watched = list_watched(events_.get());
  added_ = watched.size();
  for (const Watched& one : watched) {
    if (!told.contains(one.number)) {
      quiet_.insert(one.inode);
    }
  }
  return !watched.empty();
}

void TreeWatch::add(int directory) {
  const std::string path = "/proc/self/fd/" + std::to_string(directory);
  if (!good_ || added_.fetch_add(1, std::memory_order_relaxed) >= kMostDirectories ||
      ::inotify_add_watch(events_.get(), path.c_str(), kChanges | IN_ONLYDIR) < 0) {
    good_ = false;
  }
}

std::optional<dev_t> TreeWatch::device_of(int events) {
  constexpr unsigned kMinorBits = 20;
  const std::vector<Watched> watched = list_watched(events);
  if (watched.empty()) {
    return std::nullopt;
  }
  const std::uint64_t device = watched.front().device;
  return makedev(static_cast<unsigned>(device >> kMinorBits),
                 static_cast<unsigned>(device & ((1U << kMinorBits) - 1)));
}

}  // namespace carrel::storage
