#include "manager/manager.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "manager/box_command.h"
#include "manager/life.h"
#include "manager/stopping.h"
#include "protocol/frame.h"

namespace carrel::manager {
namespace {

constexpr std::int64_t kKeysLastMs = 24LL * 3600 * 1000;
// How long whoever finds a sandbox ended waits to be told why.
constexpr int kReasonTries = 40;
constexpr int kReasonStepMs = 50;

}  // namespace

Result<std::unique_ptr<Manager>> Manager::open(storage::Home home, ManagerOptions options) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  CARREL_ASSIGN(Ledger ledger, Ledger::open(home));
  {
    CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
    CARREL_TRY(storage::measure_old_layers(store));
  }
  CARREL_ASSIGN(auto workspaces, storage::WorkspaceRecords::open(home));
  std::unique_ptr<Manager> manager(new Manager(std::move(home), std::move(options),
                                               std::move(state), std::move(ledger),
                                               std::move(workspaces)));
  CARREL_ASSIGN(manager->owners_, manager->ledger_.owners());
  CARREL_ASSIGN(manager->public_ports_, manager->ledger_.public_ports());
  return manager;
}

bool Manager::belongs(const Caller& caller, const std::string& id) {
  if (caller.is_operator()) {
    return true;
  }
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(id);
  return found != owners_.end() && found->second == caller.owner;
}

std::string Manager::owner_of(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(id);
  return found == owners_.end() ? std::string() : found->second;
}

Result<std::optional<storage::SandboxRow>> Manager::row_of(const std::string& id) {
  const std::lock_guard lock(database_mutex_);
  return state_.find(id);
}

Result<storage::SandboxRow> Manager::find(const Caller& caller, const std::string& id) {
  if (storage::is_id(id) && belongs(caller, id)) {
    CARREL_ASSIGN(std::optional<storage::SandboxRow> row, row_of(id));
    if (row.has_value()) {
      return std::move(*row);
    }
  }
  return storage::no_such_box(id);
}

Result<std::vector<storage::SandboxRow>> Manager::list(const Caller& caller,
                                                       storage::State::Which which) {
  std::vector<storage::SandboxRow> rows;
  {
    const std::lock_guard lock(database_mutex_);
    CARREL_ASSIGN(rows, state_.list(which));
  }
  std::erase_if(rows, [&](const storage::SandboxRow& row) { return !belongs(caller, row.id); });
  return rows;
}

Status Manager::remove(const Caller& caller, const std::string& id, int grace_ms) {
  CARREL_ASSIGN(const storage::SandboxRow row, find(caller, id));
  if (row.state == "ended") {
    return {};
  }
  (void)kept_stream(id);
  if (row.state == "stopped") {
    CARREL_TRY(end_stopped(home_, id));
    drop_left_over();
    return {};
  }
  auto record = storage::read_record(home_, id);
  if (!record.ok()) {
    // It has ended in this moment, or never became whole.
    native::sweep_boxes(home_);
    return record.error().code == Code::kNotFound ? Status() : Status(record.error());
  }
  CARREL_TRY(native::remove_sandbox(home_, record.value(), grace_ms, "it was removed"));
  drop_left_over();
  return {};
}

Manager::Visit::Visit(Visit&& other) noexcept
    : manager_(std::exchange(other.manager_, nullptr)),
      record_(std::move(other.record_)),
      use_(std::move(other.use_)),
      stream_(std::move(other.stream_)),
      keep_(other.keep_) {}

Manager::Visit::~Visit() {
  if (manager_ == nullptr) {
    return;
  }
  if (keep_ && stream_.fd() >= 0) {
    const std::lock_guard lock(manager_->mutex_);
    manager_->kept_.insert_or_assign(record_.id, std::move(stream_));
  }
  stream_.close();
  manager_->leave(record_.id);
}

std::optional<sandbox::GuestStream> Manager::kept_stream(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(id);
  if (found == kept_.end()) {
    return std::nullopt;
  }
  sandbox::GuestStream stream = std::move(found->second);
  kept_.erase(found);
  // A guest that has something to say unasked has ended.
  pollfd news{stream.fd(), POLLIN, 0};
  if (::poll(&news, 1, 0) != 0) {
    return std::nullopt;
  }
  return stream;
}

Status Manager::enter(const std::string& id) {
  const std::lock_guard lock(mutex_);
  std::size_t& count = visits_[id];
  if (count >= options_.most_visits) {
    return Error{Code::kResource, 0,
                 "sandbox " + id + " has " + std::to_string(count) + " requests at once already",
                 "wait for one of them to end"};
  }
  ++count;
  return {};
}

void Manager::leave(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (const auto found = visits_.find(id); found != visits_.end() && --found->second == 0) {
    visits_.erase(found);
  }
}

Error Manager::explain_end(const std::string& id, Error error) {
  if (error.code != Code::kGone) {
    return error;
  }
  // Whoever buries it may just be at it.
  for (int i = 0; i < kReasonTries; ++i) {
    auto row = row_of(id);
    if (!row.ok() || !row.value().has_value()) {
      return error;
    }
    const bool stopped = row.value()->state == "stopped";
    if (stopped && row.value()->wake == storage::Wake::kWhenTold) {
      return is_stopped(*row.value());
    }
    if (stopped || row.value()->state == "ended") {
      error.message = "sandbox " + id + " has ended";
      if (!row.value()->reason.empty()) {
        error.message += ": " + row.value()->reason;
      }
      error.hint = stopped ? "the next call starts it again, with its workspace" : "";
      return error;
    }
    if (i == kReasonTries / 2) {
      native::sweep_boxes(home_);
    }
    ::poll(nullptr, 0, kReasonStepMs);
  }
  return error;
}

Result<Manager::Visit> Manager::connect_to(storage::BoxRecord record) {
  const std::string id = record.id;
  CARREL_TRY(enter(id));
  Visit visit(*this, std::move(record));
  if (auto kept = kept_stream(id); kept.has_value()) {
    visit.stream_ = std::move(*kept);
    (void)native::ensure_network(home_, id);  // as connect() does
    return visit;
  }
  auto stream = connect(home_, visit.record());
  if (!stream.ok()) {
    return explain_end(id, std::move(stream.error()));
  }
  visit.stream_ = std::move(stream.value());
  return visit;
}

Result<sandbox::GuestStream> Manager::Visit::another() const {
  return connect(manager_->home_, record_);
}

Result<Manager::Visit> Manager::visit(const Caller& caller, const std::string& id) {
  for (int attempt = 0;; ++attempt) {
    CARREL_ASSIGN(storage::BoxRecord record, live_record(caller, id, Rest::kWoken));
    auto use = begin_use(home_, record);
    if (!use.ok() && use.error().code != Code::kGone) {
      return use.error();
    }
    auto visit = use.ok() ? connect_to(std::move(record)) : explain_end(id, use.error());
    if (visit.ok()) {
      visit.value().use_ = std::move(use.value());
      return visit;
    }
    // It was stopped in this moment, for being idle.
    if (attempt > 0 || !wakes_by_use(id)) {
      return visit.error();
    }
  }
}

Result<Manager::Visit> Manager::look_into(const Caller& caller, const std::string& id) {
  CARREL_ASSIGN(storage::BoxRecord record, live_record(caller, id, Rest::kLeft));
  return connect_to(std::move(record));
}

Status Manager::set_lease(const Caller& caller, const std::string& id, std::uint64_t lease_ms) {
  CARREL_ASSIGN(Visit visit, look_into(caller, id));
  std::array<unsigned char, 8> buffer{};
  protocol::Writer writer(buffer);
  writer.u64(lease_ms);
  CARREL_TRY(visit.stream().send(0, protocol::FrameType::kExtend,
                                 {reinterpret_cast<const char*>(buffer.data()), buffer.size()}));
  // What comes after it was heard after it.
  CARREL_TRY(sandbox::await_guest(visit.stream(), 10'000));
  storage::note_lease(home_, id, lease_ms);
  return {};
}

Result<Manager::Stats> Manager::stats() {
  Stats stats;
  {
    const std::lock_guard lock(database_mutex_);
    CARREL_ASSIGN(const std::vector<std::string> live, ledger_.live_ids());
    stats.live = live.size();
  }
  const std::lock_guard lock(mutex_);
  stats.creating = places_on_their_way();
  for (const auto& [id, count] : visits_) {
    stats.visits += count;
  }
  stats.most = options_.most_sandboxes;
  return stats;
}

void Manager::tidy() {
  native::sweep_one_shots(home_);
  native::sweep_boxes(home_);
  drop_left_over();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [](const auto& one) {
      pollfd news{one.second.fd(), POLLIN, 0};
      return ::poll(&news, 1, 0) != 0;
    });
  }
  const std::lock_guard lock(database_mutex_);
  if (!ledger_.forget_old(storage::wall_clock_ms() - kKeysLastMs).ok()) {
    return;
  }
  if (auto owners = ledger_.owners(); owners.ok()) {
    const std::lock_guard inner(mutex_);
    auto ports = ledger_.public_ports();
    if (ports.ok()) {
      public_ports_ = std::move(ports.value());
    }
    std::erase_if(owners_, [&](const auto& one) {
      return !owners.value().contains(one.first) && !making_.contains(one.first);
    });
    std::erase_if(weights_, [&](const auto& one) { return !owners_.contains(one.first); });
  }
}

}  // namespace carrel::manager
