#include "manager/quota.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "base/unique_fd.h"
#include "policy/given.h"
#include "policy/size.h"

namespace carrel::manager {

namespace {

std::string number_text(std::uint64_t number) { return std::to_string(number); }
std::string cores_text(std::uint64_t millis) {
  return policy::format_cpus(static_cast<std::uint32_t>(millis));
}

struct Side {
  std::string_view name;
  const std::optional<std::uint64_t>& most;
  std::uint64_t used;
  std::uint64_t wanted;
  std::string (*text)(std::uint64_t value);
};

Status check_side(const Side& side) {
  if (!side.most.has_value() || side.wanted == 0 ||
      (side.used <= *side.most && side.wanted <= *side.most - side.used)) {
    return {};
  }
  return Error{
      Code::kResource, 0,
      "the quota of " + std::string(side.name) + " is used up: " + side.text(side.used) + " of " +
          side.text(*side.most) + ", and " + side.text(side.wanted) + " more is wanted",
      side.name == "disk" ? "remove a sandbox, a workspace or a snapshot that is not needed"
                          : "remove or stop a sandbox that is not needed"};
}

}  // namespace

Weight& Weight::operator+=(const Weight& other) {
  sandboxes += other.sandboxes;
  cpu_millis += other.cpu_millis;
  memory_bytes += other.memory_bytes;
  disk_bytes += other.disk_bytes;
  return *this;
}

Weight weight_of(const policy::Limits& limits) {
  return {1, limits.cpu_millis, limits.memory_bytes, limits.disk_bytes};
}

Weight weight_at_rest(const policy::Limits& limits) { return {0, 0, 0, limits.disk_bytes}; }

Status add_to_quota(std::string_view text, Quota& quota) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string_view name = text.substr(0, equals);
  const policy::Given given{name, text.substr(std::min(equals + 1, text.size()))};
  if (name == "sandboxes") {
    CARREL_ASSIGN(quota.sandboxes, policy::parse_count(given, {.least = 0, .most = 1'000'000}));
  } else if (name == "cpus") {
    CARREL_ASSIGN(quota.cpu_millis, policy::parse_cpus(given));
  } else if (name == "memory") {
    CARREL_ASSIGN(quota.memory_bytes, policy::parse_size(given));
  } else if (name == "disk") {
    CARREL_ASSIGN(quota.disk_bytes, policy::parse_size(given));
  } else {
    return Error{Code::kInvalid, 0, "there is no quota " + policy::quote(text),
                 "sandboxes=N, cpus=N, memory=SIZE or disk=SIZE"};
  }
  return {};
}

Status check_quota(const Quota& quota, const Weight& used, const Weight& wanted) {
  CARREL_TRY(
      check_side({"sandboxes", quota.sandboxes, used.sandboxes, wanted.sandboxes, number_text}));
  CARREL_TRY(
      check_side({"cores", quota.cpu_millis, used.cpu_millis, wanted.cpu_millis, cores_text}));
  CARREL_TRY(check_side(
      {"memory", quota.memory_bytes, used.memory_bytes, wanted.memory_bytes, policy::format_size}));
  return check_side(
      {"disk", quota.disk_bytes, used.disk_bytes, wanted.disk_bytes, policy::format_size});
}

HostRoom look_at_room(const std::string& home) {
  HostRoom room;
  // It stays open: to open it takes longer than to read it.
  static const UniqueFd kMemory(::open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> data;
  const ssize_t size = ::pread(kMemory.get(), data.data(), data.size(), 0);
  const std::string_view text(data.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  constexpr std::string_view kKey = "MemAvailable:";
  if (const std::size_t at = text.find(kKey); at != std::string_view::npos) {
    const std::size_t digits = std::min(text.find_first_of("0123456789", at), text.size());
    std::uint64_t kib = 0;
    if (std::from_chars(text.data() + digits, text.data() + text.size(), kib).ec == std::errc()) {
      room.memory_bytes = kib << 10;
    }
  }
  struct statvfs info{};
  if (::statvfs(home.c_str(), &info) == 0) {
    room.disk_bytes = std::uint64_t{info.f_bavail} * info.f_frsize;
  }
  return room;
}

Status check_room(const Reserve& reserve, const HostRoom& room) {
  const auto lacks = [](const char* what, std::uint64_t there, std::uint64_t least) {
    return Error{Code::kResource, 0,
                 std::string("this host has too little ") + what +
                     " for one more sandbox: " + policy::format_size(there) + " are left, and " +
                     policy::format_size(least) + " are kept free",
                 "remove or stop a sandbox that is not needed, or wait"};
  };
  if (room.memory_bytes.has_value() && *room.memory_bytes < reserve.memory_bytes) {
    return lacks("memory", *room.memory_bytes, reserve.memory_bytes);
  }
  if (room.disk_bytes.has_value() && *room.disk_bytes < reserve.disk_bytes) {
    return lacks("disk", *room.disk_bytes, reserve.disk_bytes);
  }
  return {};
}

}  // namespace carrel::manager
