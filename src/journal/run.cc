#include "journal/run.h"

#include <chrono>
#include <cstdio>
#include <thread>

#include "journal/owner.h"
#include "journal/run_parts.h"
#include "journal/store.h"
#include "policy/names.h"
#include "storage/state.h"

namespace carrel::journal {
namespace {

using storage::wall_clock_ms;

// Who holds the files that an execution begins with.
std::string first_holder(const std::string& execution) { return "first " + execution; }

}  // namespace

Run::Run(Journal& journal, Files& files, RunOptions options)
    : journal_(journal),
      files_(files),
      options_(std::move(options)),
      parts_(std::make_unique<Parts>()) {}

Run::~Run() {
  if (!parts_->ended && owner_.valid()) {
    (void)fail(Error{Code::kGone, 0, "the run was left before its end", {}});
  }
  files_.share(-1);
}

Result<std::unique_ptr<Run>> Run::begin(Journal& journal, Files& files, RunOptions options) {
  const std::string id = options.execution.empty() ? storage::random_hex(12) : options.execution;
  CARREL_TRY(policy::check_name({"the execution", id}));
  if (options.replay.has_value()) {
    CARREL_ASSIGN(const ExecutionRow source, journal.find_execution(options.replay->source));
    options.replay->source = source.id;
    options.flow = source.flow;
  }
  CARREL_TRY(policy::check_name({"the flow", options.flow}));
  CARREL_TRY(journal.settle());
  std::unique_ptr<Run> run(new Run(journal, files, std::move(options)));
  CARREL_ASSIGN(run->owner_, claim(journal.home(), id));
  run->execution_.id = id;
  files.share(run->owner_.get());
  Status begun = run->take_up();
  if (!begun.ok()) {
    run->parts_->ended = true;
    release(journal.home(), id, std::move(run->owner_));
    return begun.error();
  }
  return run;
}

Status Run::take_up() {
  Store& rows = journal_.rows();
  CARREL_TRY(journal_.settle_own(execution_.id));
  CARREL_ASSIGN(std::optional<ExecutionRow> known, rows.execution(execution_.id));
  if (known.has_value()) {
    CARREL_TRY(take_up_again(std::move(*known)));
  } else {
    CARREL_TRY(take_up_new());
  }
  if (execution_.first_identity.empty() && !execution_.workspace.empty()) {
    CARREL_TRY(keep_first());
  }
  parts_->files = {execution_.first_snapshot, execution_.first_identity, 0};
  for (std::string& warning : journal_.take_warnings()) {
    warn(std::move(warning));
  }
  return {};
}

Status Run::take_up_new() {
  execution_.flow = options_.flow;
  execution_.workspace = files_.workspace();
  execution_.state = "running";
  execution_.runs = 1;
  execution_.started_ms = wall_clock_ms();
  execution_.logs = "{}";
  if (options_.replay.has_value()) {
    CARREL_ASSIGN(const ExecutionRow source, journal_.find_execution(options_.replay->source));
    CARREL_ASSIGN(parts_->plan, ReplayPlan::make(journal_, *options_.replay));
    execution_.source = source.id;
    execution_.replay = parts_->plan->to_json();
    execution_.first_snapshot = source.first_snapshot;
    execution_.first_identity = source.first_identity;
    if (source.workspace.empty() != execution_.workspace.empty()) {
      return Error{Code::kConflict,
                   0,
                   "the execution '" + source.id + "' and its replay do not both have a workspace",
                   {}};
    }
  }
  return journal_.rows().in_transaction([&] { return journal_.rows().add_execution(execution_); });
}

Status Run::take_up_again(ExecutionRow known) {
  if (options_.replay.has_value()) {
    return Error{Code::kConflict, 0, "there is already an execution '" + known.id + "'",
                 "a replay is a new one"};
  }
  const bool same_flow = known.flow == options_.flow || !known.source.empty();
  if (!same_flow || known.workspace != files_.workspace()) {
    return Error{Code::kConflict, 0,
                 "the execution '" + known.id + "' is of the flow '" + known.flow +
                     "' and the workspace '" + known.workspace + "'",
                 "choose another name for this one"};
  }
  execution_ = std::move(known);
  ++execution_.runs;
  execution_.state = "running";
  execution_.error.clear();
  execution_.ended_ms = 0;
  if (!execution_.source.empty()) {
    CARREL_ASSIGN(parts_->plan, ReplayPlan::load(journal_, execution_));
  }
  return journal_.rows().in_transaction(
      [&] { return journal_.rows().update_execution(execution_); });
}

Status Run::keep_first() {
  Store& rows = journal_.rows();
  const std::string holder = first_holder(execution_.id);
  CARREL_TRY(rows.in_transaction(
      [&] { return rows.add_intent({holder, execution_.id, Intent::Kind::kKeep}); }));
  CARREL_ASSIGN(const FilesMark mark, files_.keep(holder));
  execution_.first_snapshot = mark.snapshot;
  execution_.first_identity = mark.identity;
  parts_->at_hand = true;
  return rows.in_transaction([&]() -> Status {
    CARREL_TRY(rows.update_execution(execution_));
    return rows.clear_intent(holder);
  });
}

void Run::warn(std::string text) {
  tell({RunEvent::Kind::kWarning, parts_->open == nullptr ? "" : parts_->open->name(), How::kLive,
        0, std::move(text)});
}

void Run::tell(const RunEvent& event) {
  if (options_.tell) {
    options_.tell(event);
  }
}

// The sandbox that a killed run was making may come when its successor has looked for it already.
Status Run::put_back(const std::string& snapshot) {
  constexpr std::chrono::seconds kPatience{5};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    Status done = files_.put_back(snapshot);
    if (done.ok() || done.error().code != Code::kConflict || !options_.stop_sandbox ||
        std::chrono::steady_clock::now() >= deadline) {
      return done;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CARREL_TRY(options_.stop_sandbox());
  }
}

// Afterwards the workspace is what `parts_->files` says, and nothing that was in it is lost.
Status Run::put_files_back() {
  if (parts_->at_hand) {
    return {};
  }
  CARREL_ASSIGN(FilesMark now, files_.keep(""));
  if (now.identity != parts_->files.identity) {
    if (options_.stop_sandbox) {
      CARREL_TRY(options_.stop_sandbox());
      CARREL_ASSIGN(now, files_.keep(""));
    }
    CARREL_TRY(put_back(parts_->files.snapshot));
    CARREL_ASSIGN(const bool known, journal_.rows().refers_to(now.snapshot));
    if (!known) {
      warn("the workspace '" + execution_.workspace +
           "' held files of no turn: they are kept as the snapshot " + now.snapshot);
    }
  }
  parts_->at_hand = true;
  return {};
}

Status Run::log(const std::string& json_object) {
  if (parts_->ended) {
    return Error{Code::kConflict, 0, "there is nothing to log to: the run has ended", {}};
  }
  if (parts_->open != nullptr) {
    TurnRow& row = parts_->open->row_;
    CARREL_ASSIGN(row.logs, merge_logs(row.logs, json_object));
    return {};
  }
  CARREL_ASSIGN(execution_.logs, merge_logs(execution_.logs, json_object));
  return journal_.rows().in_transaction(
      [&] { return journal_.rows().update_execution(execution_); });
}

Result<Artifact> Run::load(const std::string& execution, const std::string& name) {
  return journal_.load(execution, name);
}

Status Run::end(const std::string& state, const std::string& error) {
  if (parts_->ended) {
    return Error{Code::kConflict, 0, "the run has ended", {}};
  }
  parts_->ended = true;
  execution_.state = state;
  execution_.error = error;
  execution_.ended_ms = wall_clock_ms();
  Status stored =
      journal_.rows().in_transaction([&] { return journal_.rows().update_execution(execution_); });
  release(journal_.home(), execution_.id, std::move(owner_));
  return stored;
}

Status Run::finish() {
  if (!parts_->ended && options_.cached_files == CachedFiles::kPutBack) {
    CARREL_TRY(put_files_back());
  }
  return end("finished", "");
}

Status Run::fail(const Error& why) { return end("failed", why.to_string()); }

std::string event_line(const RunEvent& event) {
  if (event.kind == RunEvent::Kind::kWarning) {
    return "warning: " + event.text;
  }
  const std::string turn = "turn " + event.turn;
  if (event.kind == RunEvent::Kind::kTurnStarted) {
    return turn + " started";
  }
  char took[32];
  const auto ms = static_cast<double>(event.duration_ms);
  (void)std::snprintf(took, sizeof took, ms < 1000 ? "%.0f ms" : "%.1f s",
                      ms < 1000 ? ms : ms / 1000);
  if (event.kind == RunEvent::Kind::kTurnFailed) {
    return turn + " failed after " + took + ": " + event.text;
  }
  const char* how = event.how == How::kCached       ? " (cached)"
                    : event.how == How::kOverridden ? " (overridden)"
                                                    : "";
  return turn + " finished in " + took + how;
}

}  // namespace carrel::journal
