#include "backends/native/places.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string_view>

#include "backends/native/id_ranges.h"
#include "backends/native/strays.h"
#include "base/files.h"
#include "kernel/cgroup_limits.h"

namespace carrel::native {

namespace {

constexpr std::uint32_t kPlaces = 64;
constexpr char kNote[] = "run/places";
constexpr char kSweeper[] = "sweep";  // as the owner of a range: nobody's mark has that name
constexpr std::string_view kPrefix = "place-";
// Of its limit, what may still be counted to a group that stays: pages of files that were read.
constexpr std::uint64_t kShareLeft = 8;

// Each installation has its own ranges for places, so that two of them rarely have the same.
std::uint32_t first_place(const storage::Home& home) {
  std::uint32_t label = 0;
  const std::string& text = home.label();
  std::from_chars(text.data(), text.data() + text.size(), label, 16);
  return label % (kIdRanges / kPlaces) * kPlaces;
}

std::optional<std::uint32_t> range_of(std::string_view name) {
  std::uint32_t range = 0;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), range);
  return parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() && range < kIdRanges
             ? std::optional<std::uint32_t>(range)
             : std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> claim_place(storage::Home& home, const std::string& id) {
  if (::geteuid() != 0) {
    return std::nullopt;
  }
  const std::uint32_t first = first_place(home);
  return home.claim_ids_between(id, first, first + kPlaces - 1);
}

std::string place_name(std::uint32_t range) { return std::string(kPrefix) + std::to_string(range); }

bool is_place_name(std::string_view name) { return range_of(name).has_value(); }

bool may_stay(const kernel::Cgroup& group, const policy::Limits& limits) {
  // Another period than the usual one would stay, too.
  return kernel::cpu_bandwidth(limits.cpu_millis).period_us ==
             kernel::cpu_bandwidth(1000).period_us &&
         group.is_as_new(limits.memory_bytes / kShareLeft);
}

void note_place(const storage::Home& home) {
  if (::faccessat(home.directory(), kNote, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    (void)open_at(home.directory(), kNote, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
  }
}

void sweep_places(storage::Home& home) {
  // A note that is made from here on is of a place that may come too late for this sweep.
  ::unlinkat(home.directory(), kNote, 0);
  auto layout = find_groups(home, {});
  if (!layout.ok()) {
    return;
  }
  for (const std::string& name : kernel::list_cgroups(layout.value())) {
    const auto range = range_of(name);
    if (!range.has_value() || !home.claim_ids_between(kSweeper, *range, *range).has_value()) {
      continue;
    }
    if (auto group = kernel::Cgroup::open(layout.value(), name); group.ok()) {
      (void)group.value().remove();
    }
    home.release_ids(kSweeper, *range);
  }
}

void sweep_noted_places(storage::Home& home) {
  if (::faccessat(home.directory(), kNote, F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    sweep_places(home);
  }
}

}  // namespace carrel::native
