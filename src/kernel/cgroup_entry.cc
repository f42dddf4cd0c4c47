#include "kernel/cgroup_entry.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel::kernel {
namespace {

constexpr Controller kLimiting[] = {Controller::kMemory, Controller::kPids, Controller::kCpu};

void collect(int home, const std::string& group, int depth, std::vector<std::string>& groups) {
  constexpr int kDeepest = 32;
  if (depth < kDeepest) {
    for (const std::string& child : child_groups(home, group)) {
      collect(home, group + "/" + child, depth + 1, groups);
    }
  }
  groups.push_back(group);
}

// Whether there are processes in a group where that keeps it from having domains below it. The top
// of the tree, which has no type, may hold both.
bool holds_processes(int home, std::string_view group) {
  return SmallEntry(home, group, "cgroup.type").error() == 0 &&
         !SmallEntry(home, group, "cgroup.procs").text().empty();
}

ControllerSet intersection(ControllerSet a, ControllerSet b) {
  ControllerSet both;
  for (Controller controller : kLimiting) {
    if (a.has(controller) && b.has(controller)) {
      both.add(controller);
    }
  }
  return both;
}

}  // namespace

EntryPath::EntryPath(std::string_view group, std::string_view file) {
  if (group.size() + file.size() + 2 > sizeof text) {
    text[0] = '\0';
    return;
  }
  char* at = text;
  if (!group.empty()) {
    std::memcpy(at, group.data(), group.size());
    at += group.size();
    if (!file.empty()) {
      *at++ = '/';
    }
  }
  if (!file.empty()) {
    std::memcpy(at, file.data(), file.size());
    at += file.size();
  }
  *at = '\0';
  fits = true;
}

int open_entry(int home, std::string_view group, std::string_view file, int flags) {
  EntryPath path(group, file);
  if (!path.fits) {
    return -ENAMETOOLONG;
  }
  int fd = ::openat(home, path.text, flags | O_CLOEXEC | O_NOFOLLOW);
  return fd < 0 ? -errno : fd;
}

int write_entry(int home, std::string_view group, std::string_view file, std::string_view value) {
  int opened = open_entry(home, group, file, O_WRONLY);
  if (opened < 0) {
    return -opened;
  }
  UniqueFd fd(opened);
  ssize_t written = ::write(fd.get(), value.data(), value.size());
  if (written < 0) {
    return errno;
  }
  return written == static_cast<ssize_t>(value.size()) ? 0 : EIO;
}

SmallEntry::SmallEntry(int home, std::string_view group, std::string_view file) {
  int opened = open_entry(home, group, file, O_RDONLY);
  if (opened < 0) {
    error_ = -opened;
    return;
  }
  UniqueFd fd(opened);
  ssize_t got = ::read(fd.get(), data_, sizeof data_);
  if (got < 0) {
    error_ = errno;
  } else {
    size_ = static_cast<std::size_t>(got);
  }
}

std::vector<std::string> child_groups(int home, const std::string& group) {
  std::vector<std::string> names;
  (void)each_visible_entry_at(home, group.empty() ? "." : group, [&](const dirent& entry) {
    if (entry.d_type == DT_DIR) {
      names.emplace_back(entry.d_name);
    }
  });
  return names;
}

std::vector<std::string> groups_deepest_first(int home, const std::string& group) {
  std::vector<std::string> groups;
  collect(home, group, 0, groups);
  return groups;
}

ControllerSet enable_controllers(int home, std::string_view group, ControllerSet wanted) {
  ControllerSet enabled =
      parse_controller_list(SmallEntry(home, group, "cgroup.subtree_control").text());
  std::string request;
  for (Controller controller : kLimiting) {
    if (wanted.has(controller) && !enabled.has(controller)) {
      request += request.empty() ? "+" : " +";
      request += controller_name(controller);
    }
  }
  if (!request.empty() && holds_processes(home, group)) {
    return intersection(enabled, wanted);
  }
  bool together =
      request.empty() || write_entry(home, group, "cgroup.subtree_control", request) == 0;
  ControllerSet result;
  for (Controller controller : kLimiting) {
    if (!wanted.has(controller)) {
      continue;
    }
    // One refused controller refuses the whole write, so each gets its own chance after that.
    std::string alone(1, '+');
    alone += controller_name(controller);
    if (enabled.has(controller) || together ||
        write_entry(home, group, "cgroup.subtree_control", alone) == 0) {
      result.add(controller);
    }
  }
  return result;
}

}  // namespace carrel::kernel
