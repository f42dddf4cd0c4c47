#include "cli/fork.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/native/keeper_client.h"
#include "backends/native/network.h"
#include "base/files.h"
#include "cli/context.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/snapshot_text.h"
#include "manager/ledger.h"
#include "manager/making.h"
#include "manager/workspace_target.h"
#include "policy/backend.h"
#include "policy/settings.h"
#include "policy/spec_json.h"
#include "storage/state.h"
#include "storage/workspaces/flatten.h"
#include "storage/workspaces/snapshot.h"

namespace carrel::cli {

namespace {

// The snapshot that a fork is to begin with: one of that name, or one that is taken now.
Result<storage::SnapshotRow> find_or_take(const std::string& named, const ForkStart& from) {
  CARREL_ASSIGN(const std::unique_ptr<manager::WorkspaceTarget> at,
                manager::open_workspace_target(named));
  if (!from.snapshot.empty()) {
    CARREL_ASSIGN(storage::SnapshotRow row, from.said == ForkStart::Said::kByARecord
                                                ? at->store->snapshot(from.snapshot)
                                                : manager::find_snapshot(*at, from.snapshot));
    CARREL_TRY(storage::flatten(*at->store, row));
    return row;
  }
  CARREL_ASSIGN(const UniqueFd alone, manager::keep_runs_away(*at));
  return storage::take_snapshot(*at->store, at->row,
                                {.unchanged = storage::Unchanged::kLastOne,
                                 .asked = storage::SnapshotRow::Asked::kNo,
                                 .most = from.most},
                                *at->writers);
}

// Does that in a process of its own: what it needs to read files with would be in the way of making
// a sandbox. The answer is "+id", or "-", a digit for the kind of failure, and what failed.
// CRITICAL: no database may be open when it begins.
class SnapshotApart {
 public:
  static Result<SnapshotApart> begin(const std::string& named, const ForkStart& from) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      return system_error("take a snapshot");
    }
    UniqueFd answer(ends[0]);
    const UniqueFd to(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) {
      return system_error("take a snapshot");
    }
    if (child == 0) {
      auto taken = find_or_take(named, from);
      const Status told =
          write_all(to.get(), taken.ok() ? "+" + taken->id : failure_text(taken.error()));
      ::_exit(told.ok() ? 0 : 1);
    }
    return SnapshotApart(child, std::move(answer));
  }
  SnapshotApart(SnapshotApart&& other) noexcept
      : child_(std::exchange(other.child_, -1)), from_(std::move(other.from_)) {}
  SnapshotApart(const SnapshotApart&) = delete;
  SnapshotApart& operator=(const SnapshotApart&) = delete;
  SnapshotApart& operator=(SnapshotApart&&) = delete;
  ~SnapshotApart() { wait(); }

  Result<std::string> finish() {
    CARREL_ASSIGN(const std::string answer, read_all(from_.get(), 1 << 16));
    wait();
    if (answer.starts_with('+')) {
      return answer.substr(1);
    }
    if (answer.size() < 2) {  // it was killed
      return Error{Code::kConflict, 0, "take a snapshot", {}};
    }
    return Error{static_cast<Code>(answer[1] - '0'), 0, answer.substr(2), {}};
  }

 private:
  static std::string failure_text(const Error& error) {
    static_assert(static_cast<int>(Code::kSystem) == 9, "a digit for each");
    return "-" + std::to_string(static_cast<int>(error.code)) + error.to_string();
  }
  SnapshotApart(pid_t child, UniqueFd from) : child_(child), from_(std::move(from)) {}
  void wait() {
    while (child_ > 0 && ::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
    child_ = -1;
  }
  pid_t child_;
  UniqueFd from_;
};

// What the fork begins with if nothing has changed since; empty: no idea.
std::string likely_base(storage::WorkspaceStore& store, const std::string& named) {
  const auto box = storage::find_box(store.home(), named);
  auto name = box.ok() ? manager::workspace_of(store, box.value().id) : Result<std::string>(named);
  auto row = name.ok() ? store.find(name.value()) : Result<storage::WorkspaceRow>(name.error());
  return row.ok() ? row->head : std::string();
}

// Makes the workspace of the fork while its snapshot is taken: one waits for the disk, the other
// for the processor.
Status make_workspace(storage::WorkspaceStore& store, storage::WorkspaceRow& row,
                      SnapshotApart& snapshot) {
  Status made = row.base.empty() ? Status{} : store.make(row);
  auto taken = snapshot.finish();
  if (!made.ok() || !taken.ok()) {
    if (made.ok() && !row.base.empty()) {
      (void)store.remove(row.name);
    }
    return taken.ok() ? std::move(made) : Status{taken.error()};
  }
  const bool guessed = row.base == taken.value();
  const bool exists = !row.base.empty();
  row.base = taken.value();
  row.head = taken.value();
  if (!exists) {
    CARREL_TRY(store.make(row));
  } else if (Status set = guessed ? Status{} : store.records().set_base(row.name, row.base);
             !set.ok()) {
    (void)store.remove(row.name);
    return set;
  }
  CARREL_TRY(store.open_directory(row));
  return {};
}

Result<policy::Spec> spec_of_box(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  CARREL_ASSIGN(const std::optional<storage::SandboxRow> row, state.find(id));
  if (!row.has_value()) {
    return storage::no_such_box(id);
  }
  CARREL_ASSIGN(policy::Spec spec, policy::spec_from_json(row->spec));
  spec.environment.clear();
  return spec;
}

policy::Strength strength_of(const policy::Spec& spec) {
  return policy::isolation_of(spec.backend, spec.runtime).strength;
}

// The settings of the sandbox that is forked. Those of a workspace are the ones of the sandbox that
// is in it, or the usual ones with the workspace's size.
Result<policy::Spec> spec_of(const storage::Home& home, const std::string& named) {
  if (auto box = storage::find_box(home, named); box.ok()) {
    return spec_of_box(home, box->id);
  }
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  CARREL_ASSIGN(const manager::BoxesWith users, manager::boxes_with(store, named));
  std::optional<policy::Spec> strongest;
  for (const storage::BoxRecord& user : users.records) {
    // CRITICAL: what was written behind stronger walls is not run behind weaker ones.
    CARREL_ASSIGN(policy::Spec spec, spec_of_box(home, user.id));
    if (!strongest.has_value() || strength_of(spec) > strength_of(*strongest)) {
      strongest = std::move(spec);
    }
  }
  if (strongest.has_value()) {
    return *std::move(strongest);
  }
  policy::Spec spec = policy::default_spec(policy::Operation::kCreate);
  if (auto row = store.find(named); row.ok() && row->disk_bytes != 0) {
    spec.limits.disk_bytes = row->disk_bytes;
  }
  return spec;
}

}  // namespace

Result<std::string> make_fork(const Context& context, storage::Home& home, const std::string& named,
                              const ForkStart& from) {
  manager::Wish wish;
  CARREL_ASSIGN(wish.spec, spec_of(home, named));
  CARREL_ASSIGN(wish.trees, open_mounts(context, wish.spec));
  CARREL_ASSIGN(SnapshotApart snapshot, SnapshotApart::begin(named, from));
  CARREL_TRY(native::check_network(home, wish.spec));
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  storage::WorkspaceRow row;
  const auto chosen = context.arguments.value(OptionId::kNewWorkspace);
  row.name = chosen.has_value() ? std::string(*chosen) : "fork-" + storage::random_hex(8);
  row.owner = std::string(context.arguments.value(OptionId::kForClient).value_or(""));
  row.form = storage::TreeForm::kUpper;
  row.created_ms = storage::wall_clock_ms();
  row.used_ms = row.created_ms;
  row.disk_bytes = wish.spec.limits.disk_bytes;
  row.base = from.snapshot.empty() ? likely_base(store, named) : std::string();
  row.head = row.base;
  CARREL_TRY(make_workspace(store, row, snapshot));
  wish.spec.workspace = row.name;
  wish.spec.workspace_use = policy::WorkspaceUse::kAlone;
  wish.name = std::string(context.arguments.value(OptionId::kName).value_or(""));
  wish.finish_restore = manager::finish_restore_apart;
  // CRITICAL: whose it is is known before there is one.
  wish.chosen = [&](const std::string& id) -> Status {
    if (row.owner.empty()) {
      return {};
    }
    CARREL_ASSIGN(manager::Ledger ledger, manager::Ledger::open(home));
    return ledger.note_owner(id, row.owner);
  };
  auto id = manager::make_sandbox(home, std::move(wish));
  if (!id.ok()) {
    (void)store.remove(row.name);
    return id;
  }
  if (!chosen.has_value()) {
    CARREL_TRY(store.records().set_for_box(row.name, id.value()));
  }
  return id;
}

int fork_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  auto id = make_fork(context, home.value(), std::string(context.arguments.operands.front()),
                      {std::string(context.arguments.value(OptionId::kForkFrom).value_or("")),
                       ForkStart::Said::kByAPerson, most_bytes(context)});
  if (!id.ok()) {
    return fail(context, id.error());
  }
  print(context.json() ? "{\"id\":" + json_string(id.value()) + "}\n" : id.value() + "\n");
  return 0;
}

}  // namespace carrel::cli
