#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "backends/native/doctor_probe.h"
#include "backends/native/doctor_settings.h"
#include "backends/native/doctor_trial.h"
#include "base/files.h"
#include "kernel/cgroup.h"

namespace carrel::native {

namespace {

using kernel::Cgroup;
using kernel::Controller;

constexpr std::uint64_t kMemoryLimit = 32ULL << 20;
constexpr std::size_t kTouched = 8U << 20;
constexpr std::uint64_t kCounted = 4ULL << 20;  // the kernel counts in batches
constexpr std::uint64_t kCpuMillis = 100;
constexpr std::uint64_t kPids = 4;
constexpr int kForks = 6;
constexpr int kPatienceMs = 5000;  // used up only where something is wrong, or the host is busy
constexpr int kStepMs = 3;

void note_sources(const kernel::CgroupLayout& layout, GroupFacts& groups) {
  groups.has_v2 = layout.has_v2();
  groups.why_no_v2 = layout.why_no_v2();
  auto note = [&](Controller controller, LimitFacts& limit) {
    limit.source = layout.source(controller);
    limit.why_missing = layout.why_missing(controller);
  };
  note(Controller::kMemory, groups.memory);
  note(Controller::kCpu, groups.cpu);
  note(Controller::kPids, groups.pids);
}

// What was not set cannot be held, whatever the layout promised.
void note_enforced(const kernel::CgroupEnforcement& enforced, GroupFacts& groups) {
  groups.memory.source = enforced.memory;
  groups.cpu.source = enforced.cpu;
  groups.pids.source = enforced.pids;
}

bool is_settled(const LimitFacts& limit) {
  return limit.held || limit.source == kernel::CgroupSource::kNone;
}

// Watches the process in the group until every limit has shown itself.
void watch(const Cgroup& group, const TrialBoard& board, GroupFacts& groups) {
  for (int waited = 0; waited < kPatienceMs; waited += kStepMs) {
    const kernel::CgroupUsage usage = group.usage();
    groups.memory.held = groups.memory.held || usage.memory_bytes.value_or(0) >= kCounted;
    groups.cpu.held = groups.cpu.held || usage.cpu_throttled_periods.value_or(0) > 0;
    groups.pids.held = groups.pids.held || board.forks_refused > 0 || group.pids_limit_hits() > 0;
    if (is_settled(groups.memory) && is_settled(groups.cpu) && is_settled(groups.pids)) {
      return;
    }
    const timespec pause{0, kStepMs * 1'000'000L};
    ::nanosleep(&pause, nullptr);
  }
}

int kill_through_file(int directory, pid_t pid) {
  Status killed = write_value_at(directory, "cgroup.kill", "1");
  if (!killed.ok()) {
    return killed.error().error_number;
  }
  return end_trial(pid, kPatienceMs) == TrialEnd::kByItself ? 0 : ETIMEDOUT;
}

// A process in the group, placed as a launch places one.
pid_t start_in(Cgroup& group, const std::vector<UniqueFd>& joins, SharedBoard& shared) {
  TrialBoard& board = *shared.get();
  std::vector<int> join;
  join.reserve(joins.size());
  for (const UniqueFd& fd : joins) {
    join.push_back(fd.get());
  }
  LimitTrial trial;
  trial.join = join;
  trial.memory = kTouched;
  trial.forks = kForks;
  const int directory = group.clone_into_fd();
  pid_t pid = directory >= 0 ? start_in_group(directory) : start_trial(board);
  if (pid == 0) {
    try_limits(board, trial);
  }
  if (directory >= 0) {
    board.finish(Feature::kCloneIntoCgroup, pid < 0 ? -pid : 0);
  }
  if (directory >= 0 && pid < 0) {  // then it goes there by itself
    auto procs = group.procs_fd();
    join.push_back(procs.ok() ? procs.value().get() : -1);
    trial.join = join;
    pid = start_trial(board);
    if (pid == 0) {
      try_limits(board, trial);
    }
  }
  return pid;
}

}  // namespace

void try_groups(const kernel::CgroupLayout& layout, DoctorFacts& facts) {
  GroupFacts& groups = facts.groups;
  groups.tried = true;
  read_controllers(groups);
  note_sources(layout, groups);
  SharedBoard shared;
  if (layout.hierarchies().empty() || shared.get() == nullptr) {
    return;
  }
  kernel::CgroupLimits limits;
  limits.memory_bytes = kMemoryLimit;
  limits.cpu_millis = kCpuMillis;
  limits.pids = kPids;
  auto made = Cgroup::create(layout, "doctor-" + storage::random_hex(8), limits);
  if (!made.ok()) {
    groups.error = made.error().to_string();
    return;
  }
  Cgroup& group = made.value();
  note_enforced(group.enforced(), groups);
  auto joins = group.join_fds();
  const pid_t pid = joins.ok() ? start_in(group, joins.value(), shared) : -EACCES;
  if (pid > 0) {
    watch(group, *shared.get(), groups);
    if (const int directory = group.clone_into_fd(); directory >= 0) {
      shared.get()->finish(Feature::kCgroupKill, kill_through_file(directory, pid));
    }
    end_trial(pid, 0);
  }
  shared.report(facts.features);
  Status removed = group.remove();
  if (!removed.ok()) {
    groups.error = removed.error().to_string();
  }
}

}  // namespace carrel::native
