#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::kernel {

// The text the kernel shows about cgroups, as values. Everything here is a pure function over
// strings: nothing is opened, and a line that makes no sense is left out.

enum class Controller : unsigned { kMemory, kPids, kCpu, kFreezer, kCpuacct };
inline constexpr unsigned kControllerCount = 5;

// A set of controllers; only those that Carrel uses have a place in it.
class ControllerSet {
 public:
  constexpr ControllerSet() = default;
  constexpr ControllerSet(std::initializer_list<Controller> controllers) {
    for (Controller controller : controllers) {
      add(controller);
    }
  }
  constexpr void add(Controller controller) { bits_ |= bit(controller); }
  constexpr void remove(Controller controller) { bits_ &= ~bit(controller); }
  [[nodiscard]] constexpr bool has(Controller controller) const {
    return (bits_ & bit(controller)) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const ControllerSet&) const = default;

 private:
  static constexpr unsigned bit(Controller controller) {
    return 1U << static_cast<unsigned>(controller);
  }
  unsigned bits_ = 0;
};

std::string_view controller_name(Controller controller);

enum class CgroupVersion { kV1, kV2 };

// One mounted hierarchy. `root` is the group that is visible at `mount_point`, as this process's
// cgroup namespace names it: "/" at the top, "/.." where the mount reaches above the namespace.
struct CgroupMount {
  CgroupVersion version = CgroupVersion::kV2;
  ControllerSet controllers;  // of a v1 hierarchy; empty for v2 and for named hierarchies
  std::string root;
  std::string mount_point;
};

// The group a process is in, in one hierarchy.
struct CgroupMembership {
  CgroupVersion version = CgroupVersion::kV2;
  ControllerSet controllers;
  std::string path;
};

// From /proc/self/mountinfo: the v2 mount and the v1 mounts that have a controller Carrel uses. Of
// two mounts at one place the later is kept, because it hides the other.
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

// From /proc/self/cgroup.
std::vector<CgroupMembership> parse_cgroup_memberships(std::string_view self_cgroup);

// The controllers named in a cgroup.controllers or cgroup.subtree_control file.
ControllerSet parse_controller_list(std::string_view text);

// Where the group `path` is below a mount whose root is `root`: "" for the mount itself, otherwise
// a path without a leading slash. Nothing where the group is not visible there.
std::optional<std::string> path_below_mount(std::string_view root, std::string_view path);

// The deepest group that both relative paths are in or below.
std::string common_ancestor(std::string_view a, std::string_view b);

// The number after `key` in a file of "key number" lines, such as memory.events or cpu.stat.
std::optional<std::uint64_t> find_counter(std::string_view text, std::string_view key);

// A file that is one number; "max" is no number.
std::optional<std::uint64_t> parse_counter(std::string_view text);

// The process ids of a cgroup.procs file. A 0 (a process of an outer namespace) is left out.
std::vector<int> parse_process_ids(std::string_view text);

// Octal escapes as mountinfo writes them: "\040" is a space.
std::string unescape_mount_field(std::string_view field);

}  // namespace carrel::kernel
