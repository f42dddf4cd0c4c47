#include "kernel/cgroup_text.h"

#include <array>
#include <charconv>

namespace carrel::kernel {
namespace {

constexpr std::array<std::string_view, kControllerCount> kNames = {"memory", "pids", "cpu",
                                                                   "freezer", "cpuacct"};

// Takes the text up to the next `separator` off the front of `rest`.
std::string_view take(std::string_view& rest, char separator) {
  std::size_t end = rest.find(separator);
  std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

ControllerSet parse_names(std::string_view text, char separator) {
  ControllerSet set;
  while (!text.empty()) {
    std::string_view name = take(text, separator);
    while (!name.empty() && name.back() == '\n') {
      name.remove_suffix(1);
    }
    for (unsigned i = 0; i < kControllerCount; ++i) {
      if (kNames[i] == name) {
        set.add(static_cast<Controller>(i));
      }
    }
  }
  return set;
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const char* end = text.data() + text.size();
  auto [stop, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc{} || stop != end) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string_view controller_name(Controller controller) {
  return kNames[static_cast<unsigned>(controller)];
}

std::string unescape_mount_field(std::string_view field) {
  std::string text;
  text.reserve(field.size());
  for (std::size_t i = 0; i < field.size(); ++i) {
    if (field[i] == '\\' && i + 3 < field.size() && field[i + 1] <= '3' && is_octal(field[i + 1]) &&
        is_octal(field[i + 2]) && is_octal(field[i + 3])) {
      int value = (field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 + (field[i + 3] - '0');
      text.push_back(static_cast<char>(value));
      i += 3;
    } else {
      text.push_back(field[i]);
    }
  }
  return text;
}

std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo) {
  std::vector<CgroupMount> mounts;
  while (!mountinfo.empty()) {
    std::string_view line = take(mountinfo, '\n');
    std::size_t dash = line.find(" - cgroup");
    if (dash == std::string_view::npos) {
      continue;
    }
    std::string_view after = line.substr(dash + 3);
    std::string_view type = take(after, ' ');
    take(after, ' ');  // the source
    CgroupMount mount;
    if (type == "cgroup2") {
      mount.version = CgroupVersion::kV2;
    } else if (type == "cgroup") {
      mount.version = CgroupVersion::kV1;
      mount.controllers = parse_names(after, ',');
      if (mount.controllers.empty()) {
        continue;
      }
    } else {
      continue;
    }
    std::string_view before = line.substr(0, dash);
    take(before, ' ');  // mount id
    take(before, ' ');  // parent id
    take(before, ' ');  // device
    mount.root = unescape_mount_field(take(before, ' '));
    mount.mount_point = unescape_mount_field(take(before, ' '));
    if (mount.root.empty() || mount.mount_point.empty()) {
      continue;
    }
    std::erase_if(mounts, [&mount](const CgroupMount& earlier) {
      return earlier.mount_point == mount.mount_point;
    });
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::vector<CgroupMembership> parse_cgroup_memberships(std::string_view self_cgroup) {
  std::vector<CgroupMembership> memberships;
  while (!self_cgroup.empty()) {
    std::string_view line = take(self_cgroup, '\n');
    std::string_view number = take(line, ':');
    std::string_view names = take(line, ':');
    if (line.empty() || line.front() != '/') {
      continue;
    }
    CgroupMembership membership;
    membership.controllers = parse_names(names, ',');
    membership.version = number == "0" && names.empty() ? CgroupVersion::kV2 : CgroupVersion::kV1;
    if (membership.version == CgroupVersion::kV1 && membership.controllers.empty()) {
      continue;
    }
    membership.path = line;
    memberships.push_back(std::move(membership));
  }
  return memberships;
}

ControllerSet parse_controller_list(std::string_view text) { return parse_names(text, ' '); }

std::optional<std::string> path_below_mount(std::string_view root, std::string_view path) {
  if (path.starts_with("/..") || root.starts_with("/..")) {
    return std::nullopt;
  }
  if (root != "/") {
    if (!path.starts_with(root)) {
      return std::nullopt;
    }
    path.remove_prefix(root.size());
    if (!path.empty() && path.front() != '/') {
      return std::nullopt;
    }
  }
  while (!path.empty() && path.front() == '/') {
    path.remove_prefix(1);
  }
  return std::string(path);
}

std::string common_ancestor(std::string_view a, std::string_view b) {
  std::string common;
  while (!a.empty() && !b.empty()) {
    std::string_view part = take(a, '/');
    if (part != take(b, '/')) {
      break;
    }
    if (!common.empty()) {
      common += '/';
    }
    common += part;
  }
  return common;
}

std::optional<std::uint64_t> find_counter(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    std::string_view line = take(text, '\n');
    if (take(line, ' ') == key) {
      return parse_number<std::uint64_t>(line);
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_counter(std::string_view text) {
  return parse_number<std::uint64_t>(take(text, '\n'));
}

std::vector<int> parse_process_ids(std::string_view text) {
  std::vector<int> ids;
  while (!text.empty()) {
    std::optional<int> id = parse_number<int>(take(text, '\n'));
    if (id && *id > 0) {
      ids.push_back(*id);
    }
  }
  return ids;
}

}  // namespace carrel::kernel
