// What a Cgroup says about itself: usage, events, whether it is empty.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/cgroup.h"
#include "kernel/cgroup_entry.h"

namespace carrel::kernel {
namespace {

Error no_memory_controller(const std::string& name) {
  return Error{Code::kUnsupported, 0, "cgroup '" + name + "' has no memory controller", {}};
}

}  // namespace

std::optional<std::uint64_t> Cgroup::read_counter(std::size_t index, std::string_view file) const {
  return parse_counter(SmallEntry(home(index), name_, file).text());
}

bool Cgroup::populated() const {
  if (layout_->v2 && exists_in(*layout_->v2)) {
    SmallEntry events(home(*layout_->v2), name_, "cgroup.events");
    return find_counter(events.text(), "populated").value_or(0) != 0;
  }
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    if (!exists_in(i)) {
      continue;
    }
    for (const std::string& group : groups_deepest_first(home(i), name_)) {
      if (!SmallEntry(home(i), group, "cgroup.procs").text().empty()) {
        return true;
      }
    }
  }
  return false;
}

std::optional<std::size_t> Cgroup::index_of(Controller controller) const {
  const std::optional<std::size_t> index = layout_->index[static_cast<unsigned>(controller)];
  return index && exists_in(*index) ? index : std::nullopt;
}

CgroupUsage Cgroup::usage() const {
  CgroupUsage usage;
  if (auto memory = index_of(Controller::kMemory)) {
    bool v2 = hierarchy(*memory).version == CgroupVersion::kV2;
    usage.memory_bytes = read_counter(*memory, v2 ? "memory.current" : "memory.usage_in_bytes");
    usage.memory_peak_bytes =
        read_counter(*memory, v2 ? "memory.peak" : "memory.max_usage_in_bytes");
  }
  if (auto pids = index_of(Controller::kPids)) {
    usage.pids = read_counter(*pids, "pids.current");
  }
  if (auto cpu = index_of(Controller::kCpu)) {
    SmallEntry stat(home(*cpu), name_, "cpu.stat");
    usage.cpu_throttled_periods = find_counter(stat.text(), "nr_throttled");
  }
  // The v2 tree counts processor time also where its cpu controller is off.
  if (layout_->v2 && exists_in(*layout_->v2)) {
    SmallEntry stat(home(*layout_->v2), name_, "cpu.stat");
    usage.cpu_usec = find_counter(stat.text(), "usage_usec");
  } else if (auto cpuacct = index_of(Controller::kCpuacct)) {
    if (auto nanoseconds = read_counter(*cpuacct, "cpuacct.usage")) {
      usage.cpu_usec = *nanoseconds / 1000;
    }
  }
  return usage;
}

std::uint64_t Cgroup::sum_of_leaves(std::size_t index, std::string_view file,
                                    std::string_view key) const {
  std::uint64_t sum = 0;
  for (const std::string& leaf : leaves_) {
    sum += find_counter(SmallEntry(home(index), leaf, file).text(), key).value_or(0);
  }
  return sum;
}

// A v1 group counts only what happened to its own members; a v2 group counts its leaves too, except
// for pids.events before Linux 6.11.
std::uint64_t Cgroup::count_events(Controller controller, std::string_view v1_file,
                                   std::string_view v2_file, std::string_view key) const {
  const std::optional<std::size_t> index = index_of(controller);
  if (!index) {
    return 0;
  }
  bool v2 = hierarchy(*index).version == CgroupVersion::kV2;
  std::string_view file = v2 ? v2_file : v1_file;
  std::uint64_t own = find_counter(SmallEntry(home(*index), name_, file).text(), key).value_or(0);
  std::uint64_t leaves = sum_of_leaves(*index, file, key);
  return v2 ? std::max(own, leaves) : own + leaves;
}

std::uint64_t Cgroup::oom_kills() const {
  return count_events(Controller::kMemory, "memory.oom_control", "memory.events", "oom_kill");
}

std::uint64_t Cgroup::pids_limit_hits() const {
  return count_events(Controller::kPids, "pids.events", "pids.events", "max");
}

bool Cgroup::has_processes() const {
  const auto pids = index_of(Controller::kPids);
  return !pids || read_counter(*pids, "pids.current") != std::uint64_t{0};
}

bool Cgroup::is_as_new(std::uint64_t memory_bytes) const {
  if (has_processes()) {
    return false;
  }
  if (const auto memory = index_of(Controller::kMemory)) {
    const bool v2 = hierarchy(*memory).version == CgroupVersion::kV2;
    const auto counted = read_counter(*memory, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (!counted || *counted > memory_bytes) {
      return false;
    }
  }
  const auto cpu = index_of(Controller::kCpu);
  return !cpu || find_counter(SmallEntry(home(*cpu), name_, "cpu.stat").text(), "nr_throttled")
                         .value_or(1) == 0;
}

Result<UniqueFd> Cgroup::oom_event_fd() const {
  const std::optional<std::size_t> index = index_of(Controller::kMemory);
  if (!index) {
    return no_memory_controller(name_);
  }
  bool v2 = hierarchy(*index).version == CgroupVersion::kV2;
  std::string_view file = v2 ? "memory.events" : "memory.oom_control";
  int opened = open_entry(home(*index), name_, file, O_RDONLY);
  if (opened < 0) {
    return system_error(-opened, "open " + std::string(file) + " of cgroup '" + name_ + "'");
  }
  UniqueFd watched(opened);
  if (v2) {
    UniqueFd notify(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    std::string path = "/proc/self/fd/" + std::to_string(watched.get());
    if (!notify.valid() || ::inotify_add_watch(notify.get(), path.c_str(), IN_MODIFY) < 0) {
      return system_error("watch memory.events of cgroup '" + name_ + "'");
    }
    return notify;
  }
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event.valid()) {
    return system_error("make an eventfd");
  }
  std::string request = std::to_string(event.get()) + " " + std::to_string(watched.get());
  if (int reason = write_entry(home(*index), name_, "cgroup.event_control", request); reason != 0) {
    return system_error(reason, "watch memory.oom_control of cgroup '" + name_ + "'");
  }
  return event;
}

}  // namespace carrel::kernel
