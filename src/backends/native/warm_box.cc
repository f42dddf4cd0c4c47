#include "backends/native/warm_box.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <utility>

#include "backends/native/boot_message.h"
#include "backends/native/id_ranges.h"
#include "policy/settings.h"
#include "storage/box.h"

namespace carrel::native {

storage::BoxRecord new_record(const std::string& id, const std::string& name,
                              const policy::Spec& spec, pid_t guest, std::uint64_t start_time) {
  storage::BoxRecord record;
  record.id = id;
  record.name = name;
  record.pid = guest;
  record.start_time = start_time != 0 ? start_time : storage::start_time_of(guest);
  record.boot_id = storage::boot_id();
  record.timeout_ms = spec.limits.timeout.count();
  record.workdir = spec.workdir;
  record.cgroup_parent = spec.cgroup_parent;
  return record;
}

WarmBox::WarmBox(storage::Home& home, std::shared_ptr<const HostSetup> host, std::string parent)
    : home_(&home), host_(std::move(host)), parent_(std::move(parent)), id_(storage::make_id()) {}

WarmBox::WarmBox(WarmBox&& other) noexcept
    : home_(other.home_),
      host_(std::move(other.host_)),
      parent_(std::move(other.parent_)),
      id_(std::move(other.id_)),
      adopted_(other.adopted_),
      lock_(std::move(other.lock_)),
      listener_(std::move(other.listener_)),
      groups_(std::move(other.groups_)),
      id_range_(std::exchange(other.id_range_, std::nullopt)),
      process_(std::move(other.process_)),
      ahead_(std::move(other.ahead_)),
      limits_(std::move(other.limits_)),
      draft_(std::move(other.draft_)) {
  other.groups_ = {};
  other.process_.reset();
}

WarmBox::~WarmBox() {
  if (!lock_.valid()) {
    return;
  }
  process_.reset();
  if (adopted_) {
    return;
  }
  // What cannot be removed keeps its box, so that the next sweep finds it.
  if (groups_.box.has_value() && !groups_.box->remove().ok()) {
    return;
  }
  home_->release_ids_of(id_);
  (void)storage::remove_box(*home_, id_);
}

// The box comes first and goes last: what carries the id of no box is nobody's.
Result<WarmBox> WarmBox::make(storage::Home& home, std::shared_ptr<const HostSetup> host,
                              std::string parent) {
  WarmBox box(home, std::move(host), std::move(parent));
  CARREL_ASSIGN(storage::NewBox made, storage::make_box(home, box.id_));
  box.lock_ = std::move(made.lock);
  box.listener_ = std::move(made.socket);
  CARREL_TRY(storage::note_groups(home, box.id_, box.parent_));
  // Those of the sandbox are set when it is taken.
  const policy::Limits limits = policy::default_spec(policy::Operation::kCreate).limits;
  CARREL_ASSIGN(box.groups_, make_groups(box.host_->cgroups, box.id_, limits, Lifetime::kLongLived,
                                         Placing::kWithWork));
  CARREL_TRY(box.start());
  return box;
}

Status WarmBox::start() {
  CARREL_ASSIGN(GuestProcess process, GuestProcess::clone(Role::kRoom, groups_.clone_into));
  process_.emplace(std::move(process));
  auto execute = [&]() -> Status {
    if (::geteuid() == 0) {
      CARREL_ASSIGN(id_range_, home_->claim_ids(id_, kIdRanges));
      CARREL_TRY(process_->map_ids(id_map(kFirstSandboxId + *id_range_ * kIdsPerSandbox)));
    }
    return process_->execute();
  };
  return process_->settle(execute());
}

Status WarmBox::build_ahead(const policy::Spec& likely) {
  ahead_.emplace();
  ahead_->identity = make_identity(likely);
  CARREL_ASSIGN(ahead_->plan,
                plan_mounts(likely, look_at_host(), ahead_->identity, Lifetime::kLongLived));
  return process_->send(protocol::FrameType::kAhead, encode_plan(ahead_->plan), {});
}

Status WarmBox::lock_ahead(const policy::Spec& likely) {
  constexpr int kLongestMs = 5000;
  CARREL_TRY(set_limits(groups_, likely.limits));
  LaunchRequest job;
  job.id = id_;
  job.spec = likely;
  job.lifetime = Lifetime::kLongLived;
  job.listener = std::move(listener_);
  ahead_->boot = usual_boot(job, *host_, groups_);
  listener_ = std::move(job.listener);
  // They stay here as well, so that the message of the sandbox is the same.
  std::vector<int> descriptors = {listener_.get()};
  for (const std::vector<UniqueFd>* files : {&groups_.join, &groups_.work_join}) {
    const std::vector<int> numbers = numbers_of(*files);
    descriptors.insert(descriptors.end(), numbers.begin(), numbers.end());
  }
  CARREL_TRY(process_->send(protocol::FrameType::kBootAhead, ahead_->boot, descriptors));
  // Most likely it stays so. While there is no record, nobody takes it for more than it is.
  policy::Spec spec = likely;
  spec.cgroup_parent = parent_;
  draft_ = new_record(id_, {}, spec, process_->pid());
  CARREL_TRY(storage::write_draft(*home_, *draft_));
  limits_ = likely.limits;
  return process_->await(protocol::FrameType::kReady, kLongestMs);
}

Result<WarmBox::Lent> WarmBox::lend() {
  Lent lent;
  GuestProcess::Taken taken = process_->take();
  lent.process.reset(::fcntl(taken.pidfd.get(), F_DUPFD_CLOEXEC, 0));
  if (!lent.process.valid()) {
    return system_error("hold the first process of a sandbox");
  }
  Offer& offer = lent.offer;
  offer.id = id_;
  offer.parent = parent_;
  offer.why_no_scope = host_->why_no_scope;
  offer.pid = taken.pid;
  offer.id_range = id_range_;
  offer.lock = std::move(lock_);
  offer.listener = std::move(listener_);
  offer.stream = std::move(taken.stream);
  offer.process = std::move(taken.pidfd);
  process_.reset();
  groups_.release();
  groups_ = {};
  return lent;
}

Result<WarmBox> WarmBox::adopt(storage::Home& home, Offer offer) {
  policy::Spec spec;
  spec.cgroup_parent = offer.parent;
  CARREL_ASSIGN(HostSetup host, look_at_setup(home, spec));
  host.why_no_scope = std::move(offer.why_no_scope);
  WarmBox box(home, std::make_shared<const HostSetup>(std::move(host)), std::move(offer.parent));
  box.adopted_ = true;
  box.id_ = std::move(offer.id);
  box.id_range_ = offer.id_range;
  CARREL_ASSIGN(box.groups_, borrow_groups(box.host_->cgroups, box.id_));
  box.lock_ = std::move(offer.lock);
  box.listener_ = std::move(offer.listener);
  box.process_.emplace(
      GuestProcess::adopt(offer.pid, std::move(offer.process), std::move(offer.stream)));
  return box;
}

bool WarmBox::is_alive() const {
  pollfd ended{process_->pidfd(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

WarmBox::Parts WarmBox::take() {
  Parts parts{std::move(lock_),    std::move(listener_),
              std::move(groups_),  id_range_,
              std::move(process_), host_,
              std::move(ahead_),   limits_,
              std::move(draft_)};
  groups_ = {};
  process_.reset();
  return parts;
}

}  // namespace carrel::native
