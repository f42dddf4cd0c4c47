// Sandboxes that are stopped: what says so, and what they need to be started again.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/files.h"
#include "storage/box.h"

namespace carrel::storage {

namespace {

constexpr const char* kStopping = "/stopping";
constexpr const char* kWishes = "wishes";
constexpr char kWakes = 'u';
constexpr std::size_t kLargestWish = 4U << 20;
constexpr std::time_t kNewFor = 3600;  // seconds

std::string wish_path(const std::string& id) { return std::string(kWishes) + "/" + id; }

// Whatever it was written with: one that is stopped has to be found again.
Status sync_wish(const Home& home, const std::string& id) {
  for (const std::string& path : {wish_path(id), std::string(kWishes)}) {
    const auto fd = open_at(home.directory(), path, O_RDONLY | O_NOFOLLOW);
    if (fd.ok() && ::fsync(fd.value().get()) != 0) {
      return system_error("sync the settings of sandbox " + id);
    }
  }
  return {};
}

}  // namespace

Status note_stop(const Home& home, const std::string& id, Wake wake) {
  CARREL_TRY(sync_wish(home, id));
  return replace_file_at(home.boxes(), id + kStopping,
                         std::string(1, wake == Wake::kWhenUsed ? kWakes : 's'), 0600);
}

Status drop_stop(const Home& home, const std::string& id) {
  if (::unlinkat(home.boxes(), (id + kStopping).c_str(), 0) != 0 && errno != ENOENT) {
    return system_error("note what becomes of sandbox " + id);
  }
  return {};
}

std::optional<Wake> noted_stop(const Home& home, const std::string& id) {
  auto text = read_file_at(home.boxes(), id + kStopping, 16);
  if (!text.ok()) {
    return std::nullopt;
  }
  return text.value().starts_with(kWakes) ? Wake::kWhenUsed : Wake::kWhenTold;
}

Status put_wish(const Home& home, const std::string& id, const std::string& text, Lasting lasting) {
  if (::mkdirat(home.directory(), kWishes, 0700) != 0 && errno != EEXIST) {
    return system_error("make the directory of sandboxes' settings");
  }
  return replace_file_at(home.directory(), wish_path(id), text, 0600, lasting);
}

Result<std::string> read_wish(const Home& home, const std::string& id) {
  auto text = read_file_at(home.directory(), wish_path(id), kLargestWish);
  if (!text.ok() && text.error().error_number == ENOENT) {
    return Error{Code::kConflict, 0, "sandbox " + id + " has no workspace that would be kept",
                 "make it with --workspace NAME"};
  }
  return text;
}

void drop_wish(const Home& home, const std::string& id) {
  (void)::unlinkat(home.directory(), wish_path(id).c_str(), 0);
}

void sweep_wishes(const Home& home, const std::vector<std::string>& live_ids) {
  std::vector<std::string> ids;
  (void)each_visible_entry_at(home.directory(), kWishes,
                              [&](const dirent& entry) { ids.emplace_back(entry.d_name); });
  for (const std::string& id : ids) {
    struct stat info{};
    const bool known = std::find(live_ids.begin(), live_ids.end(), id) != live_ids.end();
    // One that is new may be of a sandbox on its way.
    if (!known &&
        ::fstatat(home.directory(), wish_path(id).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        std::time(nullptr) - info.st_mtime > kNewFor) {
      drop_wish(home, id);
    }
  }
}

}  // namespace carrel::storage
