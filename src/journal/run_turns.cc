#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "journal/run.h"
#include "journal/run_parts.h"
#include "journal/store.h"
#include "storage/state.h"

namespace carrel::journal {
namespace {

using Clock = std::chrono::steady_clock;
using storage::wall_clock_ms;

constexpr std::size_t kLongestStep = 100;

std::int64_t since(Clock::time_point began) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count();
}

Status check_step(const std::string& step) {
  const bool odd = std::any_of(step.begin(), step.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/';
  });
  const bool number = !step.empty() && step.find_first_not_of("0123456789") == std::string::npos;
  return !odd && !number && step.size() <= kLongestStep
             ? Status{}
             : Status{Error{Code::kInvalid, 0, "that is no name for a turn",
                            "up to 100 bytes, not a number, without '/' and control characters"}};
}

// "default", "default_2", …: one that no turn of the run has.
std::string next_name(std::set<std::string>& names, const std::string& step) {
  const std::string base = step.empty() ? "default" : step;
  std::string name = base;
  for (int number = 2; !names.insert(name).second; ++number) {
    name = base + "_" + std::to_string(number);
  }
  return name;
}

}  // namespace

Result<TurnResult> Run::turn(const TurnSubject& given, const TurnOptions& options,
                             const TurnBody& body) {
  if (parts_->ended || parts_->open != nullptr) {
    return Error{
        Code::kConflict, 0, parts_->ended ? "the run has ended" : "a turn is running already", {}};
  }
  if (options.retries < 0) {
    return Error{Code::kInvalid, 0, "a turn cannot be tried again less than 0 times", {}};
  }
  CARREL_TRY(check_step(given.step));
  if (options_.switches.force_failure && parts_->position > 0) {
    return Error{Code::kUnavailable, 0, "FORCE_FAILURE is on: the flow fails here on purpose",
                 "unset it, and run the same execution again"};
  }
  const auto began = Clock::now();
  TurnRow row;
  row.execution = execution_.id;
  row.run = execution_.runs;
  row.position = ++parts_->position;
  row.name = next_name(parts_->names, given.step);
  tell({RunEvent::Kind::kTurnStarted, row.name});
  auto result = choose(row, given, options, body);
  for (std::string& warning : journal_.take_warnings()) {
    warn(std::move(warning));
  }
  if (!result.ok()) {
    tell({RunEvent::Kind::kTurnFailed, row.name, How::kLive, since(began),
          result.error().to_string()});
    return result;
  }
  result->duration_ms = since(began);
  tell({RunEvent::Kind::kTurnFinished, row.name, result->how, result->duration_ms});
  return result;
}

// From the source of a replay, from the record, or by its body.
Result<TurnResult> Run::choose(TurnRow& row, const TurnSubject& given, const TurnOptions& options,
                               const TurnBody& body) {
  TurnSubject subject = given;
  const std::optional<ReplayPlan>& plan = parts_->plan;
  if (plan.has_value()) {
    const std::optional<std::string> output = plan->output(row.position);
    if (plan->is_before(row.position) || output.has_value()) {
      CARREL_ASSIGN(TurnRow source, plan->source_turn(row.position, row.name));
      return take_from(row, std::move(source), output);
    }
    CARREL_ASSIGN(subject, plan->change(row.position, std::move(subject)));
  }
  set_key(row, subject);
  const bool is_live = plan.has_value() && plan->mode() == Replay::Mode::kLive;
  // What a live replay has finished is not run again when the replay itself is.
  const bool own = is_live || (!plan.has_value() && options_.reuse == Reuse::kOwn);
  const Recorded from = own ? Recorded::kEarlierRuns : Recorded::kAnywhere;
  CARREL_ASSIGN(std::optional<TurnRow> recorded, look_up(row.key, from));
  if (recorded.has_value()) {
    return take_from(row, std::move(*recorded), std::nullopt);
  }
  if (plan.has_value() && !is_live) {
    return Error{Code::kConflict, 0,
                 "turn '" + row.name + "' is not in the record as the replay would have it",
                 "'carrel flow explain' tells what differs; a live replay would run it"};
  }
  if (options_.cached_files == CachedFiles::kKeep && !parts_->at_hand) {
    CARREL_TRY(use_files_as_they_are(row));
    set_key(row, subject);
    CARREL_ASSIGN(std::optional<TurnRow> known, look_up(row.key, from));
    if (known.has_value()) {
      return take_from(row, std::move(*known), std::nullopt);
    }
  }
  return run_body(row, subject, options, body);
}

void Run::set_key(TurnRow& row, const TurnSubject& subject) {
  const std::vector<KeyPart> parts =
      parts_of(subject, {journal_.store(), execution_.flow, parts_->files.identity});
  row.key = key_of(parts);
  row.parts = record_parts(parts);
  row.start_snapshot = parts_->files.snapshot;
  row.start_identity = parts_->files.identity;
}

Result<std::optional<TurnRow>> Run::look_up(const std::string& key, Recorded from) {
  if (options_.switches.disable_cache) {
    return std::optional<TurnRow>();
  }
  Store& rows = journal_.rows();
  std::vector<TurnRow> known;
  if (from == Recorded::kAnywhere) {
    CARREL_ASSIGN(known, rows.turns_with_key(key));
  }
  // What this execution took from another one is its own, also when that one is gone. Of a replay,
  // that was taken as its plan says.
  CARREL_ASSIGN(std::vector<TurnRow> mine, rows.turns_with_key(key, execution_.id));
  std::erase_if(mine, [&](const TurnRow& turn) {
    return turn.run >= execution_.runs ||
           (turn.state == TurnState::kFinished ? from == Recorded::kAnywhere
                                               : parts_->plan.has_value());
  });
  std::move(mine.begin(), mine.end(), std::back_inserter(known));
  for (TurnRow& turn : known) {
    CARREL_ASSIGN(const bool there, has_files(turn));
    if (there) {
      return std::optional<TurnRow>(std::move(turn));
    }
    warn("the files of turn '" + turn.name + "' of the execution '" + turn.execution +
         "' are gone, and it counts as missing");
  }
  return std::optional<TurnRow>();
}

// What an earlier run of this execution left of the turn, if it can go on from there.
Result<std::optional<TurnRow>> Run::look_up_stopped(const std::string& key) {
  if (options_.switches.disable_cache || options_.cached_files == CachedFiles::kKeep) {
    return std::optional<TurnRow>();
  }
  CARREL_ASSIGN(std::optional<TurnRow> turn, journal_.rows().stopped_turn(key, execution_.id));
  if (turn.has_value()) {
    CARREL_ASSIGN(const bool there, has_files(*turn));
    if (there) {
      return turn;
    }
    warn("the files of turn '" + turn->name + "' are gone, and it begins anew");
  }
  return std::optional<TurnRow>();
}

Result<bool> Run::has_files(const TurnRow& turn) {
  if (turn.snapshot.empty()) {
    return true;
  }
  CARREL_ASSIGN(storage::WorkspaceRecords * snapshots, journal_.rows().snapshots(journal_.home()));
  CARREL_ASSIGN(const auto row, snapshots->snapshot(turn.snapshot));
  return row.has_value();
}

Result<TurnResult> Run::take_from(TurnRow& row, TurnRow source,
                                  const std::optional<std::string>& output) {
  Store& rows = journal_.rows();
  row.id = storage::random_hex(16);
  row.attempt = 1;
  row.state = TurnState::kCached;
  row.source = source.source.empty() ? source.id : source.source;
  row.started_ms = wall_clock_ms();
  row.ended_ms = row.started_ms;
  row.key = source.key;
  row.parts = source.parts;
  row.text = output.value_or(source.text);
  row.data = output.has_value() ? "" : source.data;
  row.start_snapshot = source.start_snapshot;
  row.start_identity = source.start_identity;
  row.snapshot = source.snapshot;
  row.identity = source.identity;
  row.changed = source.changed;
  row.has_effects = source.has_effects;
  row.logs = source.logs;
  const Status stored = rows.in_transaction([&]() -> Status {
    CARREL_ASSIGN(const std::optional<TurnRow> there, rows.turn(source.id));
    if (!there.has_value()) {
      return Error{Code::kConflict, 0, "turn '" + source.name + "' was removed just now",
                   "run it again"};
    }
    CARREL_TRY(rows.add_turn(row, execution_.flow));
    return rows.copy_artifacts(source.id, row.id);
  });
  CARREL_TRY(stored);
  if (row.has_effects) {
    warn("turn '" + row.name +
         "' comes from the record: the commands that it ran are not run "
         "again, nor is what they did outside the workspace");
  }
  if (options_.cached_files == CachedFiles::kKeep && !execution_.workspace.empty()) {
    warn("turn '" + row.name + "' comes from the record, and the workspace '" +
         execution_.workspace + "' is left as it is");
  }
  parts_->at_hand = parts_->at_hand && parts_->files.identity == row.identity;
  parts_->files = {row.snapshot, row.identity, 0};
  return TurnResult{
      {row.text, row.data}, output.has_value() ? How::kOverridden : How::kCached, row.id, row.name};
}

Status Run::repeat() {
  if (parts_->ended || !parts_->plan.has_value()) {
    return Error{Code::kConflict, 0, "only a replay can be taken from the record as a whole", {}};
  }
  bool changed = false;
  for (const TurnRow& source : parts_->plan->source()) {
    if (changed || !parts_->plan->change(source.position, {}).ok()) {
      return Error{Code::kConflict, 0,
                   "turn '" + source.name + "' would have to be run: what leads to it is changed",
                   "a live replay runs it"};
    }
    const std::optional<std::string> output = parts_->plan->output(source.position);
    TurnRow row;
    row.execution = execution_.id;
    row.run = execution_.runs;
    row.position = ++parts_->position;
    row.name = source.name;
    CARREL_ASSIGN(TurnRow from, parts_->plan->source_turn(source.position, source.name));
    CARREL_ASSIGN(const bool there, has_files(from));
    if (!there) {
      return Error{Code::kConflict, 0, "the files of turn '" + source.name + "' are gone", {}};
    }
    tell({RunEvent::Kind::kTurnStarted, row.name});
    CARREL_ASSIGN(const TurnResult result, take_from(row, std::move(from), output));
    tell({RunEvent::Kind::kTurnFinished, row.name, result.how});
    changed = output.has_value();
  }
  CARREL_TRY(put_files_back());
  CARREL_ASSIGN(const FilesMark mark, files_.keep(""));
  return mark.identity == parts_->files.identity
             ? Status{}
             : Status{Error{Code::kConflict, 0, "the workspace is not what the last turn left",
                            "see 'carrel workspace fsck'"}};
}

// With CachedFiles::kKeep a turn begins with what is there, and its key says so.
Status Run::use_files_as_they_are(const TurnRow& row) {
  Store& rows = journal_.rows();
  const std::string holder =
      "start " + execution_.id + " " + std::to_string(row.run) + " " + std::to_string(row.position);
  CARREL_TRY(rows.in_transaction(
      [&] { return rows.add_intent({holder, execution_.id, Intent::Kind::kKeep}); }));
  CARREL_ASSIGN(parts_->files, files_.keep(holder));
  parts_->at_hand = true;
  parts_->start_holder = holder;
  return {};
}

Result<TurnResult> Run::run_body(TurnRow& row, const TurnSubject& subject,
                                 const TurnOptions& options, const TurnBody& body) {
  Store& rows = journal_.rows();
  CARREL_ASSIGN(std::optional<TurnRow> stopped, look_up_stopped(row.key));
  for (int attempt = 1;; ++attempt) {
    CARREL_TRY(put_files_back_to(stopped));
    row.id = storage::random_hex(16);
    row.attempt = attempt;
    row.state = TurnState::kRunning;
    row.started_ms = wall_clock_ms();
    row.logs = "{}";
    row.has_effects = stopped.has_value() && stopped->has_effects;
    row.data.clear();
    row.snapshot.clear();
    row.identity.clear();
    row.changed = stopped.has_value() ? stopped->changed : 0;
    CARREL_TRY(
        rows.in_passing([&] { return rows.in_transaction([&] { return begin_turn(row); }); }));
    Turn turn(*this, row, subject);
    turn.progress_ = stopped.has_value() ? stopped->data : "";
    stopped.reset();  // another attempt begins at the beginning
    parts_->open = &turn;
    auto output = body(turn);
    parts_->open = nullptr;
    parts_->at_hand = false;
    row = turn.row_;
    Status kept =
        output.ok() ? keep_turn(row, output.value(), turn.saved_) : Status(output.error());
    if (kept.ok()) {
      return TurnResult{std::move(output.value()), How::kLive, row.id, row.name};
    }
    row.state = TurnState::kFailed;
    row.error = kept.error().to_string();
    row.ended_ms = wall_clock_ms();
    const bool last = attempt > options.retries;
    if (!last || !turn.stopped_.has_value() || !keep_stopped(row, *turn.stopped_).ok()) {
      CARREL_TRY(rows.in_transaction([&] { return rows.end_turn(row); }));
    }
    if (last) {
      return kept.error();
    }
    warn("turn '" + row.name + "' failed and is tried again: " + row.error);
    row.error.clear();
  }
}

Status Run::begin_turn(const TurnRow& row) {
  Store& rows = journal_.rows();
  CARREL_TRY(rows.add_turn(row, execution_.flow));
  if (parts_->start_holder.empty()) {
    return {};
  }
  return rows.clear_intent(std::exchange(parts_->start_holder, {}));
}

// A turn that stopped in the middle goes on with the files of then; the others begin with those
// that the turn before left.
Status Run::put_files_back_to(const std::optional<TurnRow>& stopped) {
  if (!stopped.has_value()) {
    return put_files_back();
  }
  const FilesMark start = parts_->files;
  parts_->at_hand = parts_->at_hand && start.identity == stopped->identity;
  parts_->files = {stopped->snapshot, stopped->identity, 0};
  const Status done = put_files_back();
  parts_->files = start;
  return done;
}

// Held for the turn, which is to be stored with it.
Result<FilesMark> Run::keep_files(const std::string& turn) {
  Store& rows = journal_.rows();
  if (execution_.workspace.empty()) {
    return files_.keep("");
  }
  CARREL_TRY(rows.in_transaction(
      [&] { return rows.add_intent({turn, execution_.id, Intent::Kind::kKeep}); }));
  return files_.keep(turn);
}

// The turn has failed; what it left is there with it, or neither is.
Status Run::keep_stopped(TurnRow& row, const std::string& progress) {
  Store& rows = journal_.rows();
  CARREL_ASSIGN(const FilesMark mark, keep_files(row.id));
  TurnRow kept = row;
  kept.data = progress;
  kept.snapshot = mark.snapshot;
  kept.identity = mark.identity;
  kept.changed += mark.changed;
  return rows.in_transaction([&]() -> Status {
    CARREL_TRY(rows.end_turn(kept));
    return rows.clear_intent(row.id);
  });
}

// The checkpoint: the turn and its files are both there, or neither is.
Status Run::keep_turn(TurnRow& row, const TurnOutput& output, const std::vector<Artifact>& saved) {
  Store& rows = journal_.rows();
  CARREL_ASSIGN(const FilesMark mark, keep_files(row.id));
  row.state = TurnState::kFinished;
  row.text = output.text;
  row.data = output.data;
  row.snapshot = mark.snapshot;
  row.identity = mark.identity;
  row.changed += mark.changed;
  row.ended_ms = wall_clock_ms();
  const Status stored = rows.in_transaction([&]() -> Status {
    CARREL_TRY(rows.end_turn(row));
    for (const Artifact& artifact : saved) {
      CARREL_TRY(rows.add_artifact(row.id, artifact));
    }
    return rows.clear_intent(row.id);
  });
  CARREL_TRY(stored);
  parts_->files = mark;
  parts_->at_hand = true;
  return {};
}

}  // namespace carrel::journal
