#include "backends/native/strays.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <vector>

#include "backends/native/places.h"
#include "base/files.h"
#include "base/unique_fd.h"
#include "policy/spec_json.h"
#include "storage/box.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::native {

namespace {

std::vector<std::string> entries_of(int directory) {
  std::vector<std::string> names;
  (void)each_visible_entry_at(directory, ".",
                              [&](const dirent& entry) { names.emplace_back(entry.d_name); });
  return names;
}

bool has_mark(const storage::Home& home, const std::string& id) {
  struct stat info{};
  return ::fstatat(home.boxes(), id.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 ||
         ::fstatat(home.once(), id.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

void sweep_groups(const storage::Home& home) {
  auto layout = find_groups(home, {});
  if (!layout.ok()) {
    return;
  }
  for (const std::string& id : kernel::list_cgroups(layout.value())) {
    if (has_mark(home, id) || is_place_name(id)) {
      continue;
    }
    if (auto group = kernel::Cgroup::open(layout.value(), id); group.ok()) {
      (void)group.value().remove();
    }
  }
}

void sweep_ids(storage::Home& home) {
  // One at a time: between the look at a link and its removal another sweep could free the number
  // and a new sandbox take it.
  auto lock = open_at(home.directory(), "run/ids", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!lock.ok() || ::flock(lock.value().get(), LOCK_EX | LOCK_NB) != 0) {
    return;
  }
  for (const std::string& name : entries_of(lock.value().get())) {
    std::array<char, 64> target{};
    ssize_t size = ::readlinkat(lock.value().get(), name.c_str(), target.data(), target.size());
    std::uint32_t number = 0;
    auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
    if (size <= 0 || parsed.ptr != name.data() + name.size()) {
      continue;
    }
    const std::string id(target.data(), static_cast<std::size_t>(size));
    if (!has_mark(home, id)) {
      home.release_ids(id, number);
    }
  }
}

void sweep_rows(const storage::Home& home) {
  auto state = storage::State::open(home);
  if (!state.ok()) {
    return;
  }
  auto rows = state.value().list(storage::State::Which::kLive);
  if (!rows.ok()) {
    return;
  }
  std::vector<std::string> live;
  for (const storage::SandboxRow& row : rows.value()) {
    live.push_back(row.id);
    if (row.state == "stopped" || has_mark(home, row.id)) {
      continue;
    }
    const std::string reason =
        row.state == "creating" ? "it was never finished" : "its first process ended";
    // The mark goes after the row was changed: what is looked at now is what it was left as.
    auto now = state.value().find(row.id);
    if (!now.ok() || !now.value().has_value() || now.value()->state != row.state) {
      continue;
    }
    if (is_made_again(row)) {
      (void)state.value().set_stopped(row.id, reason, storage::Wake::kWhenUsed);
      storage::add_event(home, storage::stop_event(row.id, reason));
    } else if (state.value().set_ended(row.id, reason).ok()) {
      storage::drop_wish(home, row.id);
      storage::add_event(home, storage::stop_event(row.id, reason));
    }
  }
  storage::sweep_wishes(home, live);
}

// The names that replace_file_at() gives: something.PID.new
void sweep_temporary_files(const storage::Home& home) {
  constexpr std::string_view kEnd = ".new";
  for (const std::string& name : entries_of(home.directory())) {
    std::string_view rest = name;
    if (!rest.ends_with(kEnd)) {
      continue;
    }
    rest.remove_suffix(kEnd.size());
    std::string_view digits = rest.substr(std::min(rest.size(), rest.rfind('.') + 1));
    pid_t pid = 0;
    auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
    if (parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() && pid > 0 &&
        ::kill(pid, 0) != 0 && errno == ESRCH) {
      ::unlinkat(home.directory(), name.c_str(), 0);
    }
  }
}

}  // namespace

Result<kernel::CgroupLayout> find_groups(const storage::Home& home, const std::string& parent) {
  kernel::CgroupOptions options;
  options.label = home.label();
  if (!parent.empty()) {
    options.parent = parent;
  }
  options.use = kernel::CgroupUse::kLook;
  return kernel::detect_cgroups(options);
}

bool is_made_again(const storage::SandboxRow& row) {
  auto spec = policy::spec_from_json(row.spec);
  return row.state == "running" && spec.ok() && spec->on_failure == policy::OnFailure::kRecreate;
}

void sweep_strays(storage::Home& home) {
  sweep_groups(home);
  sweep_ids(home);
  sweep_places(home);
  struct stat info{};
  if (::fstatat(home.directory(), "state.db", &info, AT_SYMLINK_NOFOLLOW) == 0) {
    sweep_rows(home);
  }
  sweep_temporary_files(home);
}

}  // namespace carrel::native
