#include "backends/native/scope.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "backends/native/systemd_bus.h"
#include "base/files.h"
#include "kernel/cgroup_text.h"

namespace carrel::native {

namespace {

using Clock = std::chrono::steady_clock;

constexpr char kScopeNote[] = "run/keeper.scope";
constexpr std::size_t kLongestGroup = 4096;
constexpr int kShortestStepUs = 200;
constexpr int kLongestStepUs = 5000;

const char* word_of(ScopeUse use) {
  switch (use) {
    case ScopeUse::kKeeper:
      return "keeper";
    case ScopeUse::kOneShot:
      return "run";
    case ScopeUse::kDoctor:
      break;
  }
  return "doctor";
}

// The v2 group this process is in; empty if that cannot be said.
std::string own_v2_group() {
  auto text = read_file_at(AT_FDCWD, "/proc/self/cgroup");
  if (text.ok()) {
    for (const kernel::CgroupMembership& one : kernel::parse_cgroup_memberships(text.value())) {
      if (one.version == kernel::CgroupVersion::kV2) {
        return one.path;
      }
    }
  }
  return {};
}

// Why it would be in vain; null: it need not be.
const char* cannot_ask() {
  // Where systemd uses the v2 tree for its controllers, this is it.
  if (::access("/sys/fs/cgroup/cgroup.controllers", F_OK) != 0) {
    return "control groups are not v2 here, and only v2 is delegated to users";
  }
  if (::access("/run/systemd/system", F_OK) != 0) {
    return "systemd does not run here, so nobody delegates a group";
  }
  return nullptr;
}

// The manager says yes when the scope is on its way.
OwnScope wait_for_scope(const std::string& unit, BusDeadline deadline) {
  const std::string end = "/" + unit;
  for (int step = kShortestStepUs;; step = std::min(step * 2, kLongestStepUs)) {
    if (std::string group = own_v2_group(); group.ends_with(end)) {
      return {std::move(group), {}};
    }
    if (Clock::now() >= deadline) {
      return {{}, "systemd made the scope '" + unit + "' and did not move this process into it"};
    }
    ::usleep(static_cast<useconds_t>(step));
  }
}

}  // namespace

OwnScope enter_scope(const storage::Home& home, ScopeUse use, std::chrono::milliseconds patience) {
  if (::geteuid() == 0) {
    return {};
  }
  if (const char* why_not = cannot_ask(); why_not != nullptr) {
    return {{}, why_not};
  }
  const BusDeadline deadline = Clock::now() + patience;
  ScopeRequest request;
  request.unit = std::string("carrel-") + word_of(use) + "-" + home.label() + "-" +
                 storage::random_hex(8) + ".scope";
  request.description = "Sandboxes of Carrel";
  std::string why_not = "there is no systemd of this user's";
  for (const BusAddress& address : manager_addresses()) {
    auto connection = connect_manager(address, deadline);
    if (!connection.ok()) {
      if (connection.error().error_number != ENOENT) {
        why_not = connection.error().to_string();
      }
      continue;
    }
    Status asked = start_scope(connection.value().get(), address.kind, request, deadline);
    if (asked.ok()) {
      return wait_for_scope(request.unit, deadline);
    }
    why_not = "systemd gives no scope: " + asked.error().to_string();
  }
  return {{}, why_not};
}

bool can_ask_for_scope() {
  if (::geteuid() == 0 || cannot_ask() != nullptr) {
    return false;
  }
  const std::vector<BusAddress> addresses = manager_addresses();
  return std::any_of(addresses.begin(), addresses.end(), [](const BusAddress& address) {
    return ::access(address.path.c_str(), F_OK) == 0;
  });
}

std::string keepers_scope(const storage::Home& home) {
  auto group = read_file_at(home.directory(), kScopeNote, kLongestGroup);
  return group.ok() && group.value().starts_with('/') ? group.value() : std::string();
}

void note_keepers_scope(const storage::Home& home, const std::string& group) {
  if (group.empty()) {
    ::unlinkat(home.directory(), kScopeNote, 0);
    return;
  }
  // Half a name is the name of no group, so nothing has to be durable or atomic.
  auto file =
      open_at(home.directory(), kScopeNote, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
  if (file.ok()) {
    (void)write_all(file.value().get(), group);
  }
}

}  // namespace carrel::native
