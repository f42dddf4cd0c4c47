#include <algorithm>
#include <thread>

#include "base/sha256.h"
#include "journal/json_text.h"
#include "journal/redact.h"
#include "journal/run.h"
#include "journal/run_parts.h"
#include "journal/store.h"
#include "storage/state.h"

namespace carrel::journal {
namespace {

using storage::wall_clock_ms;

constexpr std::size_t kLargestArtifact = 16U << 20;
constexpr std::size_t kLargestLogs = 64U << 10;

void merge(Json& into, const Json& added) {
  for (const auto& member : added.items()) {
    Json& there = into[member.key()];
    if (there.is_object() && member.value().is_object()) {
      merge(there, member.value());
    } else {
      there = member.value();
    }
  }
}

}  // namespace

Result<std::string> merge_logs(const std::string& logs, const std::string& added) {
  CARREL_ASSIGN(const Json given, parse_json(redact(added), "what is logged"));
  if (!given.is_object()) {
    return Error{Code::kInvalid, 0, "what is logged is no JSON object", {}};
  }
  CARREL_ASSIGN(Json merged, parse_json(logs.empty() ? "{}" : logs, "the log"));
  merge(merged, given);
  std::string text = to_text(merged);
  if (text.size() > kLargestLogs) {
    return Error{Code::kResource, 0, "the log would be larger than 64 KiB", {}};
  }
  return text;
}

Turn::Turn(Run& run, TurnRow row, const TurnSubject& subject)
    : run_(run), row_(std::move(row)), subject_(subject) {}

std::string Turn::input(const std::string& name) const {
  if (name == "prompt") {
    return subject_.prompt;
  }
  const auto found = std::find_if(subject_.inputs.begin(), subject_.inputs.end(),
                                  [&](const KeyPart& part) { return part.name == name; });
  return found == subject_.inputs.end() ? std::string() : found->value;
}

Status Turn::save(const std::string& name, ArtifactKind kind, std::string value) {
  if (name.empty() || name.find('/') != std::string::npos) {
    return Error{Code::kInvalid, 0, "'" + name + "' is no name for what is saved",
                 "not empty, and without '/'"};
  }
  if (value.size() > kLargestArtifact) {
    return Error{Code::kResource, 0, "'" + name + "' is larger than 16 MiB",
                 "write it to a file of the workspace"};
  }
  const bool taken = std::any_of(saved_.begin(), saved_.end(),
                                 [&](const Artifact& one) { return one.name == name; });
  if (taken) {
    return Error{Code::kConflict, 0, "the turn has saved '" + name + "' already", {}};
  }
  saved_.push_back({name, kind, std::move(value), row_.name});
  return {};
}

Result<Turn::Called> Turn::call(const CallSubject& subject,
                                const std::function<Result<CallOutcome>()>& body) {
  Store& rows = run_.journal_.rows();
  StoredCall call;
  call.row.turn = row_.id;
  call.row.position = ++calls_;
  call.row.kind = subject.kind;
  call.row.name = subject.name;
  call.row.arguments = redact(subject.arguments);
  call.row.started_ms = wall_clock_ms();
  call.key = key_of({{"turn", row_.key},
                     {"number", std::to_string(calls_)},
                     {"kind", kind_name(subject.kind)},
                     {"name", subject.name},
                     {"arguments", subject.arguments}});
  const bool caches =
      run_.options_.granularity == Granularity::kCall && subject.caching == CallCaching::kStrategy;
  if (caches && !run_.options_.switches.disable_cache) {
    CARREL_ASSIGN(const std::optional<StoredCall> known, rows.call_with_key(call.key));
    if (known.has_value()) {
      return take_call(subject, call, *known);
    }
  }
  row_.has_effects = row_.has_effects || subject.effects == Effects::kPossible;
  auto outcome = body();
  call.row.ended_ms = wall_clock_ms();
  if (!outcome.ok()) {
    call.row.result = redact(outcome.error().to_string());
    CARREL_TRY(rows.in_passing([&] { return rows.add_call(call); }));
    return outcome.error();
  }
  call.row.result = redact(outcome->result);
  call.row.exit_code = outcome->exit_code;
  call.row.succeeded = outcome->succeeded;
  // What looks like a secret is not kept, so that call is made again.
  if (caches && outcome->succeeded && outcome->result.size() <= kLargestArtifact &&
      !redact_whole(outcome->result).changed) {
    call.payload = outcome->result;
    CARREL_TRY(rows.in_transaction([&] { return rows.add_call(call); }));
  } else {
    CARREL_TRY(rows.in_passing([&] { return rows.add_call(call); }));
  }
  return Called{std::move(outcome.value()), How::kLive};
}

Result<Turn::Called> Turn::take_call(const CallSubject& subject, StoredCall& call,
                                     const StoredCall& known) {
  call.row.result = known.row.result;
  call.row.exit_code = known.row.exit_code;
  call.row.succeeded = true;
  call.row.cached = true;
  call.row.ended_ms = wall_clock_ms();
  CARREL_TRY(run_.journal_.rows().in_passing([&] { return run_.journal_.rows().add_call(call); }));
  if (subject.effects == Effects::kPossible) {
    run_.warn("a call of '" + subject.name +
              "' comes from the record: what it did is not done again");
  }
  return Called{{*known.payload, known.row.exit_code, true}, How::kCached};
}

Result<std::string> Run::wait(const WaitRequest& request) {
  if (parts_->ended || request.name.empty()) {
    return Error{parts_->ended ? Code::kConflict : Code::kInvalid,
                 0,
                 parts_->ended ? "the run has ended" : "a wait needs a name",
                 {}};
  }
  CARREL_TRY(check_schema(request.schema));
  CARREL_TRY(ask(request));
  const auto deadline = std::chrono::steady_clock::now() + request.timeout;
  for (;;) {
    CARREL_ASSIGN(const WaitRow row, journal_.find_wait(execution_.id, request.name));
    if (row.state == "answered") {
      return row.answer;
    }
    if (row.state == "aborted") {
      return Error{
          Code::kConflict, 0, "the question '" + cap(request.question) + "' was aborted", {}};
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::milliseconds(0)) {
      return Error{Code::kTimeout, 0, "nobody has answered yet: " + cap(request.question),
                   "carrel flow answer " + execution_.id + " " + request.name +
                       " JSON, and run the same execution again"};
    }
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
        left, std::max(request.poll, std::chrono::milliseconds(1))));
  }
}

// Stores the question unless it is there, with the answer that it had in the source of a replay.
Status Run::ask(const WaitRequest& request) {
  Store& rows = journal_.rows();
  CARREL_ASSIGN(const std::optional<WaitRow> known, rows.wait(execution_.id, request.name));
  if (known.has_value()) {
    return known->question == request.question
               ? Status{}
               : Status{Error{Code::kConflict,
                              0,
                              "the wait '" + request.name + "' asks something else",
                              {}}};
  }
  WaitRow row{execution_.id, request.name, request.question, request.schema,
              "open",        "",           wall_clock_ms(),  0};
  constexpr int kMostSources = 64;
  std::string source = execution_.source;
  for (int depth = 0; !source.empty() && depth < kMostSources; ++depth) {
    CARREL_ASSIGN(const std::optional<WaitRow> before, rows.wait(source, request.name));
    if (before.has_value() && before->state == "answered" && before->question == request.question &&
        check_answer(request.schema, before->answer).ok()) {
      row.state = before->state;
      row.answer = before->answer;
      row.answered_ms = before->answered_ms;
      break;
    }
    CARREL_ASSIGN(const std::optional<ExecutionRow> above, rows.execution(source));
    source = above.has_value() ? above->source : "";
  }
  return rows.in_transaction([&] { return rows.add_wait(row); });
}

}  // namespace carrel::journal
