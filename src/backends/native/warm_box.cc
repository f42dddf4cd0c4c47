#include "backends/native/warm_box.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "backends/native/id_ranges.h"
#include "policy/settings.h"
#include "storage/box.h"

namespace carrel::native {

WarmBox::WarmBox(storage::Home& home, std::shared_ptr<const HostSetup> host, std::string parent)
    : home_(&home), host_(std::move(host)), parent_(std::move(parent)), id_(storage::make_id()) {}

WarmBox::WarmBox(WarmBox&& other) noexcept
    : home_(other.home_),
      host_(std::move(other.host_)),
      parent_(std::move(other.parent_)),
      id_(std::move(other.id_)),
      lock_(std::move(other.lock_)),
      listener_(std::move(other.listener_)),
      groups_(std::move(other.groups_)),
      id_range_(std::exchange(other.id_range_, std::nullopt)),
      process_(std::move(other.process_)) {
  other.groups_ = {};
  other.process_.reset();
}

WarmBox::~WarmBox() {
  if (!lock_.valid()) {
    return;
  }
  process_.reset();
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

bool WarmBox::is_alive() const {
  pollfd ended{process_->pidfd(), POLLIN, 0};
  return ::poll(&ended, 1, 0) == 0;
}

WarmBox::Parts WarmBox::take() {
  Parts parts{std::move(lock_), std::move(listener_), std::move(groups_),
              id_range_,        std::move(process_),  host_};
  groups_ = {};
  process_.reset();
  return parts;
}

}  // namespace carrel::native
