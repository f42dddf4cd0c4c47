#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "kernel/cgroup_text.h"

namespace carrel::kernel {

// Who enforces or accounts a resource.
enum class CgroupSource { kNone, kCgroupV1, kCgroupV2 };

// One hierarchy in which Carrel makes groups. `home` is the group that they are made in; it belongs
// to the host, so every sandbox's directory in it begins with CgroupLayout::prefix().
struct CgroupHierarchy {
  CgroupVersion version = CgroupVersion::kV2;
  ControllerSet controllers;
  std::string directory;  // of `home`, for messages
  UniqueFd home;
};

// What a layout is for. Placing processes needs more rights than looking after groups that are
// there: who moves a process must have the group above both places.
enum class CgroupUse {
  kPlace,
  kLook,  // to read, freeze, kill and remove; changes nothing, and makes no new group
};

// The group that root's sandboxes are made in where the v2 tree has controllers. It is shared by
// all installations and stays. A service manager takes controllers away from the top of the tree
// when no unit of its own needs them, limits of strangers included; it cannot while a group there
// passes them on.
inline constexpr char kCgroupHome[] = "carrel";

struct CgroupOptions {
  // Names the installation: its groups are `carrel-<label>-<id>`. Letters, digits, '-' and '_'.
  std::string label;
  // The group to work below, relative to the top of every hierarchy. It must exist: a hierarchy
  // that does not have it, or does not let us write there, is not used. Without one, root works at
  // the top of each hierarchy (in kCgroupHome where that is v2 with controllers) and anybody else
  // (or a root that may not write there) in the group the process is in.
  std::optional<std::string> parent;
  // Leaves out a v2 tree, and v1 hierarchies, that are of no use for limits: enough for whoever
  // neither freezes nor kills by group.
  bool only_limits = false;
  // Without a parent: the v2 group to work below where the one above gives no controllers.
  std::optional<std::string> otherwise;
  CgroupUse use = CgroupUse::kPlace;
};

// Whether this host has nothing but v2. There a process should be born in its group: to move one
// there later takes the kernel ten milliseconds.
bool has_only_v2();

// Which hierarchies this process can use, found once and then used for every group. It holds an
// open directory for each; a Cgroup borrows them, so the layout outlives its groups. Moving the
// layout is fine.
class CgroupLayout {
 public:
  // `carrel-<label>-`: what the directory of each of this installation's groups begins with.
  [[nodiscard]] const std::string& prefix() const { return state_->prefix; }

  // kNone where no usable hierarchy has the controller.
  [[nodiscard]] CgroupSource source(Controller controller) const;

  // Why source() is kNone, as a sentence; empty otherwise.
  [[nodiscard]] const std::string& why_missing(Controller controller) const;

  // Whether there is a v2 tree to clone into, freeze and kill through, with or without controllers,
  // and if not, why.
  [[nodiscard]] bool has_v2() const { return state_->v2.has_value(); }
  [[nodiscard]] const std::string& why_no_v2() const { return state_->why_no_v2; }

  // The `parent` or `otherwise` of the options that the groups are made below; empty: neither.
  [[nodiscard]] const std::string& parent() const { return state_->parent; }

  [[nodiscard]] const std::vector<CgroupHierarchy>& hierarchies() const {
    return state_->hierarchies;
  }
  // An index into hierarchies().
  [[nodiscard]] std::optional<std::size_t> index_of(Controller controller) const;
  [[nodiscard]] std::optional<std::size_t> v2_index() const { return state_->v2; }

 private:
  friend class Cgroup;
  friend Result<CgroupLayout> detect_cgroups(const CgroupOptions& options);

  struct State {
    std::string prefix;
    std::string parent;
    std::vector<CgroupHierarchy> hierarchies;
    std::array<std::optional<std::size_t>, kControllerCount> index;
    std::array<std::string, kControllerCount> missing;
    std::optional<std::size_t> v2;
    std::string why_no_v2;
  };
  std::unique_ptr<State> state_ = std::make_unique<State>();
};

// Reads /proc/self/mountinfo and /proc/self/cgroup, chooses the hierarchies, opens the group to
// work in in each, and turns the v2 controllers on there. It makes no group but kCgroupHome. Fails
// only for bad options or an unreadable /proc; a host that gives nothing is a layout full of kNone.
//
// A delegated v2 group that holds this process cannot also pass controllers to children. Where this
// process is alone in it, it moves itself to the leaf `carrel-self`; where it is not, the
// controllers stay missing. Root at the top of a hierarchy is never moved.
Result<CgroupLayout> detect_cgroups(const CgroupOptions& options);

// The ids of the groups that exist in any hierarchy of this installation, sorted.
std::vector<std::string> list_cgroups(const CgroupLayout& layout);

// Whether `name` can name a sandbox, a label or a leaf: 1 to 64 letters, digits, '-' and '_'.
bool is_group_name(std::string_view name);

}  // namespace carrel::kernel
