#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "backends/native/remains.h"
#include "manager/manager.h"
#include "manager/stopping.h"
#include "policy/spec_json.h"

// How a sandbox comes to be: a place, a key, an owner, and then the keeper is asked.
namespace carrel::manager {
namespace {

// More than the layer of a snapshot can take: its files, and as much again for what goes with them.
std::uint64_t most_of_a_snapshot(const policy::Limits& limits) {
  constexpr std::uint64_t kBesides = 64U << 20;
  return 2 * limits.disk_bytes + kBesides;
}

}  // namespace

// A place among the sandboxes that there may be, from before the keeper is asked until the sandbox
// is counted by being there.
class Manager::Place {
 public:
  Place(Manager& manager, std::list<Hold>::iterator hold) : manager_(manager), hold_(hold) {}
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    const std::lock_guard lock(manager_.mutex_);
    if (!hold_->id.empty()) {
      manager_.making_.erase(hold_->id);
      manager_.weights_.erase(hold_->id);
    }
    manager_.holds_.erase(hold_);
  }
  // The sandbox will have this id, instead of another that it was to have.
  void name(const std::string& id) {
    const std::lock_guard lock(manager_.mutex_);
    if (!hold_->id.empty()) {
      manager_.making_.erase(hold_->id);
    }
    hold_->id = id;
    manager_.making_.insert(id);
  }

 private:
  Manager& manager_;
  std::list<Hold>::iterator hold_;
};

// A key that somebody is making a sandbox under.
class Manager::KeyUse {
 public:
  explicit KeyUse(Manager& manager) : manager_(manager) {}
  KeyUse(const KeyUse&) = delete;
  KeyUse& operator=(const KeyUse&) = delete;
  ~KeyUse() {
    if (!name_.empty()) {
      const std::lock_guard lock(manager_.mutex_);
      manager_.keys_.erase(name_);
    }
  }
  Status take(const Caller& caller, const std::string& key) {
    if (key.empty()) {
      return {};
    }
    const std::string name = caller.owner + '\n' + key;
    const std::lock_guard lock(manager_.mutex_);
    if (!manager_.keys_.insert(name).second) {
      return Error{Code::kConflict, 0, "a request with this idempotency key is on its way",
                   "ask again in a moment"};
    }
    name_ = name;
    return {};
  }

 private:
  Manager& manager_;
  std::string name_;
};

// What the key has made already, be it in an earlier daemon.
Result<std::optional<Manager::Created>> Manager::find_made(const Caller& caller,
                                                           const std::string& key,
                                                           const std::string& digest) {
  if (key.empty()) {
    return std::optional<Created>();
  }
  const std::lock_guard lock(database_mutex_);
  CARREL_ASSIGN(const std::optional<Ledger::Order> order, ledger_.find_order(caller.owner, key));
  if (!order.has_value()) {
    return std::optional<Created>();
  }
  if (order->digest != digest) {
    return Error{Code::kConflict, 0, "this idempotency key was used for another request",
                 "use a key once"};
  }
  CARREL_ASSIGN(std::optional<storage::SandboxRow> row, state_.find(order->id));
  // One that was not told as done counts if it became whole all the same.
  const bool whole = order->done || storage::read_record(home_, order->id).ok();
  if (row.has_value() && whole && (order->done || row->state == "running")) {
    return std::optional<Created>(Created{std::move(*row), Created::How::kBefore});
  }
  return std::optional<Created>();
}

Status Manager::check_host() const {
  return check_room(options_.reserve, look_at_room(home_.path()));
}

// Some hold room on the disk and nothing else.
std::size_t Manager::places_on_their_way() const {
  return static_cast<std::size_t>(std::count_if(
      holds_.begin(), holds_.end(), [](const Hold& hold) { return hold.weight.sandboxes > 0; }));
}

Result<Weight> Manager::weight_of_owner(const std::string& owner,
                                        const std::vector<std::string>& live) {
  Weight sum;
  CARREL_ASSIGN(const std::vector<storage::WorkspaceRow> rows, workspaces_.owned_by(owner));
  std::set<std::string> workspaces;
  for (const storage::WorkspaceRow& row : rows) {
    workspaces.insert(row.name);
    sum.disk_bytes += storage::charge_for(row);
  }
  CARREL_ASSIGN(const std::uint64_t layers, workspaces_.layer_bytes(owner));
  sum.disk_bytes += layers;
  for (const Hold& hold : holds_) {
    if (hold.owner == owner) {
      sum += hold.weight;
    }
  }
  for (const auto& [id, whose] : owners_) {
    if (whose != owner || making_.contains(id)) {
      continue;
    }
    const bool runs = std::find(live.begin(), live.end(), id) != live.end();
    if (const auto known = weights_.find(id); runs && known != weights_.end()) {
      sum += known->second;
      continue;
    }
    CARREL_ASSIGN(const auto row, state_.find(id));
    auto spec = row.has_value() && row->state != "ended" ? policy::spec_from_json(row->spec)
                                                         : Result<policy::Spec>(Error{});
    if (!spec.ok()) {
      continue;
    }
    Weight weight = runs ? weight_of(spec->limits) : weight_at_rest(spec->limits);
    if (workspaces.contains(spec->workspace)) {
      weight.disk_bytes = 0;  // that is what its disk is
    }
    if (runs) {
      weights_[id] = weight;
    }
    sum += weight;
  }
  return sum;
}

Result<std::list<Manager::Hold>::iterator> Manager::take_place(const Caller& caller,
                                                               const Weight& wanted) {
  CARREL_TRY(check_host());
  for (int attempt = 0;; ++attempt) {
    Status full;
    {
      // The count and the taking are one step.
      const std::lock_guard database(database_mutex_);
      CARREL_ASSIGN(const std::vector<std::string> live, ledger_.live_ids());
      const std::lock_guard lock(mutex_);
      const auto there = std::count_if(
          live.begin(), live.end(), [&](const std::string& id) { return !making_.contains(id); });
      if (static_cast<std::size_t>(there) + places_on_their_way() >= options_.most_sandboxes) {
        full = Error{
            Code::kResource, 0,
            "Maximum number of sandboxes (" + std::to_string(options_.most_sandboxes) + ") reached",
            "remove one that is not needed"};
      } else if (!caller.is_operator()) {
        CARREL_ASSIGN(const Weight used, weight_of_owner(caller.owner, live));
        full = check_quota(caller.quota, used, wanted);
      }
      if (full.ok()) {
        holds_.push_back({caller.owner, wanted, {}});
        return std::prev(holds_.end());
      }
    }
    if (attempt > 0) {
      return full.error();
    }
    native::sweep_boxes(home_);  // some may have ended unnoticed
  }
}

Result<std::shared_ptr<Manager::Place>> Manager::hold_once(const Caller& caller,
                                                           const policy::Limits& limits) {
  if (caller.is_operator()) {
    CARREL_TRY(check_host());
    return std::shared_ptr<Place>();
  }
  CARREL_ASSIGN(const auto hold, take_place(caller, weight_of(limits)));
  return std::make_shared<Place>(*this, hold);
}

Status Manager::start(const Caller& caller, const std::string& id) {
  CARREL_ASSIGN(const storage::SandboxRow row, find(caller, id));
  if (row.state == "ended") {
    return explain_end(id, Error{Code::kGone, 0, "sandbox " + id + " has ended", {}});
  }
  if (row.state == "running") {
    return {};
  }
  CARREL_ASSIGN(const policy::Spec spec, policy::spec_from_json(row.spec));
  Weight wanted = weight_of(spec.limits);
  wanted.disk_bytes = 0;  // it has that already
  const Caller owner{owner_of(id), caller.quota};
  CARREL_ASSIGN(const auto hold, take_place(owner, wanted));
  Place place(*this, hold);
  place.name(id);
  return start_sandbox(home_, row, options_.finish_restore);
}

Result<storage::SandboxRow> Manager::fork(const Caller& caller, const std::string& id,
                                          const std::function<Result<std::string>(Most)>& make) {
  CARREL_ASSIGN(const storage::SandboxRow row, find(caller, id));
  CARREL_ASSIGN(const policy::Spec spec, policy::spec_from_json(row.spec));
  Weight wanted = weight_of(spec.limits);
  wanted.disk_bytes = storage::charge_for_new(spec.limits.disk_bytes);
  CARREL_ASSIGN(const auto hold, take_place(caller, wanted));
  Place place(*this, hold);
  CARREL_ASSIGN(const DiskRoom room, hold_disk(caller, most_of_a_snapshot(spec.limits)));
  CARREL_ASSIGN(const std::string made, make(room.bytes));
  place.name(made);
  if (!caller.is_operator()) {
    {
      const std::lock_guard lock(database_mutex_);
      CARREL_TRY(ledger_.note_owner(made, caller.owner));
    }
    const std::lock_guard lock(mutex_);
    owners_[made] = caller.owner;
  }
  return find(caller, made);
}

Status Manager::snapshot(const Caller& caller, const std::string& id,
                         const std::function<Status(Most)>& take) {
  CARREL_ASSIGN(const storage::SandboxRow row, find(caller, id));
  CARREL_ASSIGN(const policy::Spec spec, policy::spec_from_json(row.spec));
  CARREL_ASSIGN(const DiskRoom room, hold_disk(caller, most_of_a_snapshot(spec.limits)));
  return take(room.bytes);
}

Result<Manager::DiskRoom> Manager::hold_disk(const Caller& caller, std::uint64_t bound) {
  if (caller.is_operator() || !caller.quota.disk_bytes.has_value()) {
    return DiskRoom{};
  }
  const std::lock_guard database(database_mutex_);
  CARREL_ASSIGN(const std::vector<std::string> live, ledger_.live_ids());
  const std::lock_guard lock(mutex_);
  CARREL_ASSIGN(const Weight used, weight_of_owner(caller.owner, live));
  const std::uint64_t most = *caller.quota.disk_bytes;
  const std::uint64_t free = most - std::min(most, used.disk_bytes);
  const std::uint64_t bytes = std::min(free, bound);
  holds_.push_back({caller.owner, {0, 0, 0, bytes}, {}});
  return DiskRoom{std::make_shared<Place>(*this, std::prev(holds_.end())), bytes};
}

Result<Manager::Created> Manager::create(const Caller& caller, Wish wish, const std::string& key,
                                         const std::string& digest) {
  KeyUse use(*this);
  CARREL_TRY(use.take(caller, key));
  CARREL_ASSIGN(std::optional<Created> made, find_made(caller, key, digest));
  if (made.has_value()) {
    return std::move(*made);
  }
  CARREL_ASSIGN(const auto hold, take_place(caller, weight_of(wish.spec.limits)));
  Place place(*this, hold);
  wish.warm = options_.warm > 0 ? &warm_ : nullptr;
  native::MadeHere here;
  wish.here = &here;
  wish.chosen = [&](const std::string& id) -> Status {
    place.name(id);
    {
      const std::lock_guard lock(database_mutex_);
      if (!caller.is_operator()) {
        CARREL_TRY(ledger_.note_owner(id, caller.owner));
      }
      if (!key.empty()) {
        CARREL_TRY(ledger_.put_order(caller.owner, key, {digest, id, false}));
      }
    }
    if (!caller.is_operator()) {
      const std::lock_guard lock(mutex_);
      owners_[id] = caller.owner;
    }
    return {};
  };
  auto id = make_sandbox(home_, std::move(wish));
  if (!id.ok()) {
    if (!key.empty()) {
      const std::lock_guard lock(database_mutex_);
      (void)ledger_.drop_order(caller.owner, key);
    }
    return id.error();
  }
  if (!key.empty()) {
    const std::lock_guard lock(database_mutex_);
    CARREL_TRY(ledger_.put_order(caller.owner, key, {digest, id.value(), true}));
  }
  if (here.finished.has_value()) {
    // The first visit has the stream of its maker.
    const std::lock_guard lock(mutex_);
    kept_.insert_or_assign(id.value(), std::move(here.finished->stream));
    return Created{std::move(here.finished->row), Created::How::kNow};
  }
  CARREL_ASSIGN(storage::SandboxRow row, find(caller, id.value()));
  return Created{std::move(row), Created::How::kNow};
}

}  // namespace carrel::manager
