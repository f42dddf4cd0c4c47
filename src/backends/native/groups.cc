#include "backends/native/groups.h"

#include <utility>

namespace carrel::native {

namespace {

// The guest's own share: its rings, its clients' buffers and the shells' pipes.
constexpr std::uint64_t kGuestMemory = 96ULL << 20;
// Beside what the user counts there are the guest (one-shot), or the spawner and the minder of the
// default shell (long-lived).
constexpr std::uint64_t kOwnProcesses = 1;
constexpr std::uint64_t kOwnWorkers = 2;

kernel::CgroupLimits workload_limits(const policy::Limits& limits, std::uint64_t own) {
  kernel::CgroupLimits result;
  result.memory_bytes = limits.memory_bytes;
  result.cpu_millis = limits.cpu_millis;
  result.pids = limits.pids + own;
  return result;
}

Result<SandboxGroups> enter(kernel::Cgroup box, Placing placing) {
  SandboxGroups groups;
  groups.enforced = box.enforced();
  CARREL_ASSIGN(groups.join, box.join_fds());
  groups.box.emplace(std::move(box));
  if (placing == Placing::kAtBirth || placing == Placing::kTogether) {
    groups.clone_into = groups.box->clone_into_fd();
    return groups;
  }
  CARREL_ASSIGN(UniqueFd procs, groups.box->procs_fd());
  if (procs.valid()) {
    groups.join.push_back(std::move(procs));
  }
  return groups;
}

// How the guest and the workload come into the two leaves.
Status enter_leaves(SandboxGroups& groups, Placing placing) {
  CARREL_ASSIGN(groups.join, groups.guest->join_fds());
  groups.clone_into = groups.guest->clone_into_fd();
  CARREL_ASSIGN(groups.work_join, groups.work->join_fds());
  CARREL_ASSIGN(UniqueFd procs, groups.work->procs_fd());
  if (!procs.valid()) {
    return {};
  }
  groups.work_join.push_back(std::move(procs));
  if (placing == Placing::kWithWork) {
    CARREL_ASSIGN(UniqueFd own_procs, groups.guest->procs_fd());
    groups.join.push_back(std::move(own_procs));
    groups.clone_into = groups.work->clone_into_fd();
    groups.moves_later = true;
  }
  return {};
}

}  // namespace

void SandboxGroups::release() {
  for (std::optional<kernel::Cgroup>* group : {&work, &guest, &box}) {
    if (group->has_value()) {
      (*group)->release();
    }
  }
}

Result<SandboxGroups> make_groups(const kernel::CgroupLayout& layout, const std::string& id,
                                  const policy::Limits& limits, Lifetime lifetime,
                                  Placing placing) {
  SandboxGroups groups;
  if (layout.hierarchies().empty()) {
    return groups;
  }
  if (lifetime == Lifetime::kOneShot || placing == Placing::kTogether) {
    const std::uint64_t own = lifetime == Lifetime::kOneShot ? kOwnProcesses : kOwnWorkers;
    CARREL_ASSIGN(kernel::Cgroup box,
                  kernel::Cgroup::create(layout, id, workload_limits(limits, own)));
    return enter(std::move(box), placing);
  }
  CARREL_ASSIGN(kernel::Cgroup box, kernel::Cgroup::create(layout, id, {}));
  groups.box.emplace(std::move(box));
  CARREL_ASSIGN(kernel::Cgroup work,
                groups.box->subgroup(kWorkLeaf, workload_limits(limits, kOwnWorkers)));
  groups.work.emplace(std::move(work));
  groups.enforced = groups.work->enforced();
  kernel::CgroupLimits own;
  own.memory_bytes = kGuestMemory;
  CARREL_ASSIGN(kernel::Cgroup guest, groups.box->subgroup(kGuestLeaf, own));
  groups.guest.emplace(std::move(guest));
  CARREL_TRY(enter_leaves(groups, placing));
  return groups;
}

Result<SandboxGroups> borrow_groups(const kernel::CgroupLayout& layout, const std::string& id) {
  SandboxGroups groups;
  if (layout.hierarchies().empty()) {
    return groups;
  }
  constexpr auto kBorrowed = kernel::CgroupOwnership::kBorrowed;
  CARREL_ASSIGN(kernel::Cgroup box, kernel::Cgroup::open(layout, id, kBorrowed));
  groups.box.emplace(std::move(box));
  CARREL_ASSIGN(kernel::Cgroup work, groups.box->open_subgroup(kWorkLeaf, kBorrowed));
  groups.work.emplace(std::move(work));
  CARREL_ASSIGN(kernel::Cgroup guest, groups.box->open_subgroup(kGuestLeaf, kBorrowed));
  groups.guest.emplace(std::move(guest));
  CARREL_TRY(enter_leaves(groups, Placing::kWithWork));
  return groups;
}

Status set_limits(SandboxGroups& groups, const policy::Limits& limits) {
  const bool one_shot = !groups.work.has_value();
  std::optional<kernel::Cgroup>& limited = one_shot ? groups.box : groups.work;
  if (!limited.has_value()) {
    return {};
  }
  CARREL_TRY(limited->set_limits(workload_limits(limits, one_shot ? kOwnProcesses : kOwnWorkers)));
  groups.enforced = limited->enforced();
  return {};
}

Result<SandboxGroups> take_groups(const kernel::CgroupLayout& layout, const std::string& place,
                                  const policy::Limits& limits, Placing placing) {
  if (layout.hierarchies().empty()) {
    return SandboxGroups();
  }
  CARREL_ASSIGN(kernel::Cgroup box,
                kernel::Cgroup::take(layout, place, workload_limits(limits, kOwnProcesses)));
  return enter(std::move(box), placing);
}

}  // namespace carrel::native
