#include "kernel/cgroup_layout.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "kernel/cgroup_entry.h"

namespace carrel::kernel {
namespace {

constexpr std::string_view kSelfLeaf = "carrel-self";
constexpr ControllerSet kLimitingControllers = {Controller::kMemory, Controller::kPids,
                                                Controller::kCpu};
constexpr ControllerSet kNoV2Helpers = {Controller::kFreezer, Controller::kCpuacct};

// Whether a base is the group that was handed to this process, rather than one it was given rights
// over as root.
enum class Delegation { kNo, kYes };

struct Base {
  std::string path;  // below the mount
  Delegation delegation = Delegation::kNo;
};

struct Opened {
  std::optional<CgroupHierarchy> hierarchy;
  std::string why_not;
  std::string otherwise;  // the second choice, where it was the better one
};

std::string join(const std::string& directory, std::string_view below) {
  std::string path = directory;
  if (!below.empty()) {
    path += '/';
    path += below;
  }
  return path;
}

std::string refused(const std::string& path, int reason) {
  return "'" + path + "': " + std::strerror(reason);
}

// The group this process is in below `mount`. Its own leaf counts as the group it was made in, so a
// second start in the same delegated group finds the same base.
std::optional<std::string> own_group(const CgroupMount& mount,
                                     const std::vector<CgroupMembership>& memberships) {
  for (const CgroupMembership& membership : memberships) {
    if (membership.version != mount.version || membership.controllers != mount.controllers) {
      continue;
    }
    std::optional<std::string> path = path_below_mount(mount.root, membership.path);
    if (path && mount.version == CgroupVersion::kV2) {
      if (*path == kSelfLeaf) {
        path->clear();
      } else if (path->ends_with(kSelfLeaf) &&
                 (*path)[path->size() - kSelfLeaf.size() - 1] == '/') {
        path->resize(path->size() - kSelfLeaf.size() - 1);
      }
    }
    return path;
  }
  return std::nullopt;
}

std::vector<Base> candidate_bases(const CgroupMount& mount, ControllerSet on_v1,
                                  const std::optional<std::string>& parent,
                                  const std::optional<std::string>& own) {
  if (parent) {
    bool is_own = own && *own == *parent && !own->empty();
    return {Base{*parent, is_own ? Delegation::kYes : Delegation::kNo}};
  }
  std::vector<Base> bases;
  if (::geteuid() == 0) {
    if (mount.version == CgroupVersion::kV2 && on_v1 != kLimitingControllers) {
      bases.push_back(Base{kCgroupHome, Delegation::kNo});
    }
    bases.push_back(Base{"", Delegation::kNo});
  }
  if (own && (bases.empty() || !own->empty())) {
    bases.push_back(Base{*own, Delegation::kYes});
  }
  return bases;
}

// A process moves only where its mover may write to cgroup.procs of the group above both places.
int check_v2_rights(const CgroupMount& mount, const std::string& base,
                    const std::optional<std::string>& own) {
  if (::geteuid() == 0) {
    return 0;
  }
  std::string above = own ? common_ancestor(*own, base) : std::string();
  std::string procs = join(join(mount.mount_point, above), "cgroup.procs");
  return ::faccessat(AT_FDCWD, procs.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

// Frees a delegated group from this process where it is the only one in it.
void leave_for_leaf(int base) {
  std::vector<int> members = parse_process_ids(SmallEntry(base, "", "cgroup.procs").text());
  if (members.size() != 1 || members.front() != ::getpid()) {
    return;
  }
  std::string leaf(kSelfLeaf);
  if (::mkdirat(base, leaf.c_str(), 0755) == 0 || errno == EEXIST) {
    (void)write_entry(base, leaf, "cgroup.procs", "0");
  }
}

ControllerSet limiting_controllers(int base, std::string_view file) {
  ControllerSet named = parse_controller_list(SmallEntry(base, "", file).text());
  ControllerSet limiting;
  for (Controller controller : {Controller::kMemory, Controller::kPids, Controller::kCpu}) {
    if (named.has(controller)) {
      limiting.add(controller);
    }
  }
  return limiting;
}

// Sees to it that kCgroupHome exists in the v2 tree at `mount_point` and is offered everything that
// the top of the tree has. False where that has nothing to pass on.
bool make_home(const std::string& mount_point) {
  constexpr int kTries = 3;  // somebody else may take away again what was just turned on
  auto top = open_at(AT_FDCWD, mount_point, O_RDONLY | O_DIRECTORY);
  if (!top.ok()) {
    return false;
  }
  const ControllerSet wanted = limiting_controllers(top.value().get(), "cgroup.controllers");
  for (int i = 0; i < kTries && !wanted.empty(); ++i) {
    if (enable_controllers(top.value().get(), "", wanted).empty() ||
        (::mkdirat(top.value().get(), kCgroupHome, 0755) != 0 && errno != EEXIST)) {
      return false;
    }
    if (enable_controllers(top.value().get(), kCgroupHome, wanted) == wanted) {
      return true;
    }
  }
  return !wanted.empty();
}

// Whether kCgroupHome can be the base. Quick where it is there and complete.
bool prepare_home(const std::string& mount_point, CgroupUse use) {
  auto home = open_at(AT_FDCWD, join(mount_point, kCgroupHome), O_RDONLY | O_DIRECTORY);
  if (home.ok() && (use == CgroupUse::kLook ||
                    limiting_controllers(home.value().get(), "cgroup.subtree_control") ==
                        kLimitingControllers)) {
    return true;
  }
  return use == CgroupUse::kPlace && make_home(mount_point);
}

ControllerSet pass_controllers_down(int base, Delegation delegation) {
  const ControllerSet wanted = limiting_controllers(base, "cgroup.controllers");
  if (wanted.empty()) {
    return wanted;
  }
  ControllerSet enabled = enable_controllers(base, "", wanted);
  if (enabled != wanted && delegation == Delegation::kYes) {
    leave_for_leaf(base);
    enabled = enable_controllers(base, "", wanted);
  }
  return enabled;
}

Opened open_base(const CgroupMount& mount, const Base& base, const std::optional<std::string>& own,
                 CgroupUse use) {
  std::string base_path = join(mount.mount_point, base.path);
  auto directory = open_at(AT_FDCWD, base_path, O_RDONLY | O_DIRECTORY);
  if (!directory.ok()) {
    return {std::nullopt, refused(base_path, directory.error().error_number), {}};
  }
  if (mount.version == CgroupVersion::kV2 && use == CgroupUse::kPlace) {
    if (int reason = check_v2_rights(mount, base.path, own); reason != 0) {
      return {std::nullopt, refused(base_path, reason), {}};
    }
  }
  if (::faccessat(directory.value().get(), ".", W_OK, AT_EACCESS) != 0) {
    return {std::nullopt, refused(base_path, errno), {}};
  }
  CgroupHierarchy hierarchy;
  hierarchy.version = mount.version;
  hierarchy.directory = std::move(base_path);
  hierarchy.home = std::move(directory.value());
  if (mount.version == CgroupVersion::kV1) {
    hierarchy.controllers = mount.controllers;
  } else if (use == CgroupUse::kPlace) {
    hierarchy.controllers = pass_controllers_down(hierarchy.home.get(), base.delegation);
  } else {
    hierarchy.controllers = limiting_controllers(hierarchy.home.get(), "cgroup.subtree_control");
  }
  return {std::move(hierarchy), {}, {}};
}

// `on_v1` are the limiting controllers that the v2 tree cannot have.
Opened open_mount(const CgroupMount& mount, ControllerSet on_v1, const CgroupOptions& options,
                  const std::vector<CgroupMembership>& memberships) {
  std::optional<std::string> own = own_group(mount, memberships);
  Opened result{std::nullopt, "'" + mount.mount_point + "' does not show this process's group", {}};
  for (const Base& base : candidate_bases(mount, on_v1, options.parent, own)) {
    if (!options.parent && base.path == kCgroupHome &&
        !prepare_home(mount.mount_point, options.use)) {
      continue;
    }
    result = open_base(mount, base, own, options.use);
    if (result.hierarchy) {
      break;
    }
  }
  const bool limits = result.hierarchy && !result.hierarchy->controllers.empty();
  if (mount.version == CgroupVersion::kV2 && !limits && !options.parent && options.otherwise) {
    Opened second = open_base(mount, Base{*options.otherwise, Delegation::kNo}, own, options.use);
    if (second.hierarchy && !second.hierarchy->controllers.empty()) {
      second.otherwise = *options.otherwise;
      return second;
    }
  }
  return result;
}

bool has_dot_dot(std::string_view path) {
  return path == ".." || path.starts_with("../") || path.ends_with("/..") ||
         path.find("/../") != std::string_view::npos;
}

Result<std::optional<std::string>> checked_group(const std::optional<std::string>& given) {
  if (!given) {
    return std::optional<std::string>();
  }
  std::string_view path = *given;
  while (!path.empty() && path.front() == '/') {
    path.remove_prefix(1);
  }
  while (!path.empty() && path.back() == '/') {
    path.remove_suffix(1);
  }
  if (has_dot_dot(path)) {
    return Error{Code::kInvalid, 0, "cgroup parent '" + *given + "' contains '..'", {}};
  }
  return std::optional<std::string>(path);
}

}  // namespace

bool is_group_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

bool has_only_v2() {
  constexpr long kCgroup2 = 0x63677270;  // CGROUP2_SUPER_MAGIC
  struct statfs info{};
  return ::statfs("/sys/fs/cgroup", &info) == 0 && info.f_type == kCgroup2;
}

CgroupSource CgroupLayout::source(Controller controller) const {
  std::optional<std::size_t> index = index_of(controller);
  if (!index) {
    return CgroupSource::kNone;
  }
  return state_->hierarchies[*index].version == CgroupVersion::kV2 ? CgroupSource::kCgroupV2
                                                                   : CgroupSource::kCgroupV1;
}

const std::string& CgroupLayout::why_missing(Controller controller) const {
  return state_->missing[static_cast<unsigned>(controller)];
}

std::optional<std::size_t> CgroupLayout::index_of(Controller controller) const {
  return state_->index[static_cast<unsigned>(controller)];
}

Result<CgroupLayout> detect_cgroups(const CgroupOptions& options) {
  if (!is_group_name(options.label)) {
    return Error{Code::kInvalid, 0, "'" + options.label + "' is no name for a cgroup",
                 "use letters, digits, '-' and '_'"};
  }
  CgroupOptions request = options;
  CARREL_ASSIGN(request.parent, checked_group(options.parent));
  CARREL_ASSIGN(request.otherwise, checked_group(options.otherwise));
  CARREL_ASSIGN(std::string mountinfo, read_file_at(AT_FDCWD, "/proc/self/mountinfo", 64U << 20U));
  CARREL_ASSIGN(std::string self_cgroup, read_file_at(AT_FDCWD, "/proc/self/cgroup"));
  std::vector<CgroupMount> mounts = parse_cgroup_mounts(mountinfo);
  std::vector<CgroupMembership> memberships = parse_cgroup_memberships(self_cgroup);

  ControllerSet on_v1;
  for (const CgroupMount& mount : mounts) {
    for (Controller controller : {Controller::kMemory, Controller::kPids, Controller::kCpu}) {
      if (mount.controllers.has(controller)) {
        on_v1.add(controller);
      }
    }
  }

  CgroupLayout layout;
  CgroupLayout::State& state = *layout.state_;
  state.prefix = "carrel-" + options.label + "-";
  state.parent = options.parent.value_or("");
  state.missing.fill("no cgroup hierarchy with this controller is mounted");
  state.why_no_v2 = "no cgroup2 file system is mounted";
  auto consider = [&](const CgroupMount& mount) {
    bool is_v2 = mount.version == CgroupVersion::kV2;
    bool needed = is_v2 && !state.v2 && !options.only_limits;
    for (unsigned i = 0; i < kControllerCount; ++i) {
      auto controller = static_cast<Controller>(i);
      bool useful = kLimitingControllers.has(controller) ||
                    (kNoV2Helpers.has(controller) && !state.v2 && !options.only_limits);
      bool had = is_v2 || mount.controllers.has(controller);
      needed = needed || (had && useful && !state.index[i]);
    }
    if (!needed) {
      return;
    }
    Opened opened = open_mount(mount, on_v1, request, memberships);
    if (options.only_limits && opened.hierarchy && opened.hierarchy->controllers.empty()) {
      opened.hierarchy.reset();
      opened.why_not = "'" + mount.mount_point + "' has no controllers here";
    }
    std::size_t index = state.hierarchies.size();
    if (is_v2) {
      state.why_no_v2 = opened.why_not;
      if (opened.hierarchy) {
        state.v2 = index;
      }
    }
    for (unsigned i = 0; i < kControllerCount; ++i) {
      auto controller = static_cast<Controller>(i);
      if (opened.hierarchy && opened.hierarchy->controllers.has(controller) && !state.index[i]) {
        state.index[i] = index;
        state.missing[i].clear();
      } else if (!opened.hierarchy && mount.controllers.has(controller) && !state.index[i]) {
        state.missing[i] = opened.why_not;
      } else if (is_v2 && !state.index[i]) {
        state.missing[i] = opened.hierarchy
                               ? "'" + opened.hierarchy->directory +
                                     "' does not have the controller: it is bound to v1, not "
                                     "delegated, or the group above holds processes"
                               : opened.why_not;
      }
    }
    if (!opened.otherwise.empty()) {
      state.parent = *options.otherwise;
    }
    if (opened.hierarchy) {
      state.hierarchies.push_back(std::move(*opened.hierarchy));
    }
  };
  // The v2 tree comes first: with it, the v1 freezer and cpuacct hierarchies are not needed. For
  // limits alone it is needed only for those that v1 does not hold.
  std::array order = {CgroupVersion::kV2, CgroupVersion::kV1};
  if (options.only_limits) {
    std::swap(order[0], order[1]);
  }
  for (CgroupVersion version : order) {
    for (const CgroupMount& mount : mounts) {
      if (mount.version == version) {
        consider(mount);
      }
    }
  }
  return layout;
}

std::vector<std::string> list_cgroups(const CgroupLayout& layout) {
  std::vector<std::string> ids;
  for (const CgroupHierarchy& hierarchy : layout.hierarchies()) {
    for (const std::string& name : child_groups(hierarchy.home.get(), "")) {
      if (name.size() > layout.prefix().size() && name.starts_with(layout.prefix())) {
        ids.push_back(name.substr(layout.prefix().size()));
      }
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace carrel::kernel
