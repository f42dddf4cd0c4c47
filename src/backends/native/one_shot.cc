#include "backends/native/one_shot.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "backends/native/image_home.h"
#include "backends/native/keeper_client.h"
#include "backends/native/launch.h"
#include "backends/native/network.h"
#include "backends/native/places.h"
#include "backends/native/remains.h"
#include "backends/native/scope.h"
#include "base/files.h"
#include "egress/denials.h"
#include "policy/file_room.h"
#include "storage/events.h"

namespace carrel::native {

namespace {

// What the control group knows and the command's own end does not tell. Returns how much memory
// was used at most, where that matters and somebody counted, or 0.
std::uint64_t add_group_facts(const kernel::Cgroup& group, sandbox::ExecResult& result) {
  result.oom_killed = result.oom_killed || group.oom_kills() > 0;
  result.process_limit = result.process_limit || group.pids_limit_hits() > 0;
  return result.oom_killed ? group.usage().memory_peak_bytes.value_or(0) : 0;
}

// The groups of a place may stay for the next one, where somebody lent the first process: then
// there is somebody who removes them at last.
bool leaves_place(const Launched& box, const policy::Limits& limits,
                  const Result<sandbox::ExecResult>& result) {
  return box.child == 0 && is_place_name(box.groups.box->name()) && result.ok() &&
         !result.value().oom_killed && !result.value().process_limit &&
         may_stay(*box.groups.box, limits);
}

// A limit that ended or hindered the command is part of its result, and an event.
void tell_limits(const storage::Home& home, const std::string& id, const policy::Spec& spec,
                 std::uint64_t peak, sandbox::ExecResult& result) {
  const policy::Limits& limits = spec.limits;
  if (result.oom_killed) {
    result.reason =
        "out of memory: the limit is " + std::to_string(limits.memory_bytes >> 20) + " MiB";
    storage::add_event(home, storage::limit_event(id, "memory", limits.memory_bytes,
                                                  std::max(peak, limits.memory_bytes)));
    sandbox::add_memory_limit(result, limits.memory_bytes);
  }
  if (result.disk_limit) {
    sandbox::add_disk_limit(result, limits.disk_bytes);
    storage::add_event(home,
                       storage::limit_event(id, "disk", limits.disk_bytes, limits.disk_bytes));
  }
  if (result.files_full) {
    sandbox::add_files_full(result, policy::file_room_text(spec));
  }
  if (result.process_limit) {
    sandbox::add_process_limit(result, limits.pids);
    storage::add_event(home, storage::limit_event(id, "pids", limits.pids, limits.pids));
  }
}

// What it wanted from a network, as far as that is known.
void tell_network(const std::string& id, const policy::Spec& spec, const egress::Denials& denials,
                  sandbox::ExecResult& result) {
  if (result.success()) {
    return;
  }
  if (!has_network(spec)) {
    if (result.no_network) {
      sandbox::add_no_network(result);
    }
  } else if (const auto denied = denials.first_of(id); denied.has_value()) {
    sandbox::add_denied(result, denied->target, denied->rule);
  }
}

// What a crash would leave behind is found by its mark. Where there is no control group and no
// range of ids, there is nothing to find.
Result<UniqueFd> leave_mark(storage::Home& home, const std::string& id, const std::string& parent) {
  CARREL_ASSIGN(UniqueFd mark, home.claim_once(id));
  CARREL_TRY(write_all(mark.get(), parent));  // for whoever cleans up after us
  return mark;
}

// Whether a limit was demanded that only a control group can hold, and there is none for it.
bool lacks_required_limit(const policy::Spec& spec, const kernel::CgroupLayout& groups) {
  return std::any_of(spec.required.begin(), spec.required.end(), [&](policy::Protection one) {
    return (one == policy::Protection::kMemory &&
            groups.source(kernel::Controller::kMemory) == kernel::CgroupSource::kNone) ||
           (one == policy::Protection::kCpu &&
            groups.source(kernel::Controller::kCpu) == kernel::CgroupSource::kNone);
  });
}

void forget(storage::Home& home, const policy::Spec& spec, const std::string& id) {
  if (has_network(spec)) {
    egress::remove_registration(home, id);
  }
  home.release_once(id);
}

constexpr int kRoomMs = 10'000;

using Opening = std::optional<NetworkOpening>;

// What is left of a sandbox behind somebody else's walls.
Status settle(Launched& box, const policy::Spec& spec, const sandbox::Walls* walls) {
  if (sandbox::are_machines(walls)) {  // a command's time begins when there is somebody to run it
    return sandbox::await_guest(box.stream, static_cast<int>(walls->patience().count()));
  }
  if (!box.rest.has_value()) {
    return {};
  }
  CARREL_TRY(sandbox::await_room(box.stream, kRoomMs));
  CARREL_TRY(set_limits(box.groups, sandbox::limits_behind(*walls, spec.limits)));
  return finish_room(box);
}

// The command, with its network served as long as it runs.
Result<sandbox::ExecResult> serve(Launched& box, Result<Opening> network, const OneShot& job,
                                  std::string_view start, sandbox::CommandIo io) {
  std::optional<egress::Attendance> attendance;
  CARREL_ASSIGN(Opening opening, std::move(network));
  if (opening.has_value()) {
    CARREL_ASSIGN(attendance, std::move(*opening).finish(box.stream));
    io.aside = attendance->fd();
    io.on_aside = [&] { return attendance->renew(); };
  }
  return sandbox::serve_command(box.stream, protocol::FrameType::kStart, start, job.command.timeout,
                                io);
}

constexpr std::chrono::seconds kLookAgain{1};

}  // namespace

// A sandbox that is being made. The host is looked at while the guest builds its root, except where
// the guest has to be born in its control group.
class OneShots::Making {
 public:
  Making(OneShots& all, std::string id, const OneShot& job, KeepersScope keepers)
      : all_(&all), id_(std::move(id)), spec_(job.spec), trees_(&job.trees), keepers_(keepers) {}

  Result<Launched> make() {
    const Placing placing = kernel::has_only_v2() ? Placing::kAtBirth : Placing::kLater;
    LaunchRequest request;
    request.id = id_;
    request.spec = spec_;
    request.walls = all_->find_walls_(spec_.backend, spec_.runtime);
    CARREL_ASSIGN(request.trees, duplicate(*trees_));
    CARREL_TRY(add_trust(*all_->home_, id_, spec_, request.trees));
    CARREL_TRY(add_image_home(spec_, request.trees));
    if (::geteuid() == 0) {
      CARREL_ASSIGN(mark_, leave_mark(*all_->home_, id_, spec_.cgroup_parent));
      request.id_range = range_ = claim_place(*all_->home_, id_);
    }
    SandboxGroups groups;
    if (placing == Placing::kAtBirth) {
      CARREL_ASSIGN(groups, find_place(placing));
    }
    CARREL_ASSIGN(Launch launch, Launch::begin(*all_->home_, std::move(request), groups.clone_into,
                                               all_->lender_));
    if (has_network(spec_)) {
      CARREL_TRY(begin_network(launch));
    }
    if (placing == Placing::kLater) {
      CARREL_ASSIGN(groups, find_place(placing));
    }
    return launch.finish(*host_, std::move(groups));
  }

  // Its network, on its way to be served; nothing if it has none.
  Result<Opening> open_network(const Launched& launched) {
    if (has_network(spec_) && !network_.has_value()) {
      CARREL_ASSIGN(network_,
                    NetworkOpening::begin(*all_->home_, id_, launched.pidfd.get(), {}, spec_));
    }
    return std::exchange(network_, std::nullopt);
  }

  [[nodiscard]] bool in_keepers_scope() const {
    return spec_.cgroup_parent.empty() && host_ && !host_->cgroups.parent().empty();
  }

 private:
  // Its network is tried and served while the rest is done, if it was made ahead.
  Status begin_network(Launch& launch) {
    if (sandbox::are_gvisors(all_->find_walls_(spec_.backend, spec_.runtime))) {
      return {};  // nobody asks its guest
    }
    CARREL_ASSIGN(UniqueFd listener, egress::bind_guest_socket(*all_->home_, id_));
    launch.give_listener(std::move(listener));
    CARREL_ASSIGN(LentProcess* const lent, launch.await_network());
    if (lent != nullptr) {
      CARREL_ASSIGN(network_, NetworkOpening::begin(*all_->home_, id_, lent->pidfd.get(),
                                                    std::move(lent->network), spec_));
    }
    return {};
  }

  Result<SandboxGroups> find_place(Placing placing) {
    CARREL_TRY(look_at_host());
    if (!mark_.valid() && !host_->cgroups.hierarchies().empty()) {
      CARREL_ASSIGN(mark_, leave_mark(*all_->home_, id_, host_->cgroups.parent()));
    }
    if (range_.has_value() && spec_.cgroup_parent.empty()) {
      auto taken = take_groups(host_->cgroups, place_name(*range_), limits_of_groups(), placing);
      if (taken.ok() || taken.error().code != Code::kConflict) {
        return taken;
      }
    }
    return make_groups(host_->cgroups, id_, limits_of_groups(), Lifetime::kOneShot, placing);
  }

  // Whoever builds the walls is in the same group.
  [[nodiscard]] policy::Limits limits_of_groups() const {
    const sandbox::Walls* const walls = all_->find_walls_(spec_.backend, spec_.runtime);
    return walls == nullptr ? spec_.limits : sandbox::limits_while_building(*walls, spec_.limits);
  }

  Status look_at_host() {
    host_ = spec_.cgroup_parent.empty() ? all_->seen_host() : nullptr;
    if (!host_) {
      CARREL_ASSIGN(HostSetup host,
                    look_at_setup(*all_->home_, spec_, Look::kOnlyLimits, keepers_));
      host_ = std::make_shared<const HostSetup>(std::move(host));
      if (spec_.cgroup_parent.empty() && !in_keepers_scope()) {  // that may end at any moment
        all_->keep_host(host_);
      }
    }
    return lacks_required_limit(spec_, host_->cgroups) ? ask_for_limits() : Status();
  }

  // The service manager takes milliseconds to answer, so it is asked only when it has to be.
  Status ask_for_limits() {
    if (!spec_.cgroup_parent.empty()) {
      return {};
    }
    OwnScope scope = enter_scope(*all_->home_, ScopeUse::kOneShot);
    if (!scope.group.empty()) {
      spec_.cgroup_parent = scope.group;
    }
    CARREL_ASSIGN(HostSetup host, look_at_setup(*all_->home_, spec_, Look::kOnlyLimits));
    host.why_no_scope = scope.why_not;
    host_ = std::make_shared<const HostSetup>(std::move(host));
    return {};
  }

  OneShots* all_;
  std::string id_;
  policy::Spec spec_;
  const std::vector<GivenTree>* trees_;
  KeepersScope keepers_;
  UniqueFd mark_;
  std::optional<std::uint32_t> range_;  // of a place
  Opening network_;
  std::shared_ptr<const HostSetup> host_;  // the sandbox's groups refer to it
};

OneShots::~OneShots() {
  if (left_place_ && !keeper_is_alive(*home_)) {
    sweep_places(*home_);
  }
}

std::shared_ptr<const HostSetup> OneShots::seen_host() {
  const std::lock_guard lock(mutex_);
  return Clock::now() - host_seen_ < kLookAgain ? host_ : nullptr;
}

void OneShots::keep_host(std::shared_ptr<const HostSetup> host) {
  const std::lock_guard lock(mutex_);
  host_ = std::move(host);
  host_seen_ = Clock::now();
}

void OneShots::sweep() {
  {
    const std::lock_guard lock(mutex_);
    if (swept_ != Clock::time_point() && Clock::now() - swept_ < kLookAgain) {
      return;
    }
    swept_ = Clock::now();
  }
  sweep_quickly(*home_);
  sweep_walls(*home_, find_walls_);
}

Result<sandbox::ExecResult> OneShots::run(const OneShot& job, const sandbox::CommandIo& io,
                                          const EnforcementListener& listener) {
  storage::Home& home = *home_;
  const auto input = io.input >= 0 ? sandbox::Input::kFollows : sandbox::Input::kNone;
  CARREL_ASSIGN(std::string start, sandbox::encode_start(job.command, input));
  const std::string id = storage::make_id();
  const egress::Denials denials = egress::Denials::since_now(home.directory());
  auto making = std::make_unique<Making>(*this, id, job, KeepersScope::kUse);
  auto launched = making->make();
  if (!launched.ok() && making->in_keepers_scope()) {  // it may just have ended
    home.release_ids_of(id);
    forget(home, job.spec, id);
    making = std::make_unique<Making>(*this, id, job, KeepersScope::kLeave);
    launched = making->make();
  }
  Result<Opening> network =
      launched.ok() ? making->open_network(launched.value()) : Result<Opening>(launched.error());
  sweep();  // while the guest builds its room
  if (!launched.ok()) {
    home.release_ids_of(id);
    forget(home, job.spec, id);
    return launched.error();
  }
  Launched& box = launched.value();
  if (listener) {
    listener(box.enforcement);
  }
  const sandbox::Walls* const walls = find_walls_(job.spec.backend, job.spec.runtime);
  const Status settled = settle(box, job.spec, walls);
  if (sandbox::are_machines(walls) && settle_origin(*walls, box) && listener) {
    listener({{*box.enforcement.find(kStartedFrom)}});
  }
  Result<sandbox::ExecResult> result = settled.ok() ? serve(box, std::move(network), job, start, io)
                                                    : Result<sandbox::ExecResult>(settled.error());
  end_sandbox(box);
  if (!result.ok() && result.error().code == Code::kGone) {
    result = explain(box, result.error());
  }
  std::uint64_t peak = 0;
  if (box.groups.box.has_value()) {
    if (result.ok()) {
      peak = add_group_facts(*box.groups.box, result.value());
    } else if (result.error().code == Code::kGone && box.groups.box->oom_kills() > 0) {
      result.error().message = "the sandbox ended: out of memory";
      result.error().code = Code::kResource;
    }
    if (leaves_place(box, job.spec.limits, result)) {
      box.groups.box->release();
      note_place(home);
      left_place_ = true;
    } else {
      CARREL_TRY(box.groups.box->remove());
    }
  }
  if (result.ok()) {
    tell_limits(home, id, job.spec, peak, result.value());
    tell_network(id, job.spec, denials, result.value());
  }
  if (box.id_range.has_value()) {
    home.release_ids(box.id, *box.id_range);
  }
  forget(home, job.spec, id);
  return result;
}

}  // namespace carrel::native
