#include "journal/replay_plan.h"

#include <algorithm>

#include "journal/json_text.h"

namespace carrel::journal {

Result<ReplayPlan> ReplayPlan::make(Journal& journal, const Replay& replay) {
  ReplayPlan plan;
  CARREL_ASSIGN(plan.source_, journal.turns(replay.source));
  plan.mode_ = replay.mode;
  if (!replay.from.empty()) {
    CARREL_ASSIGN(const TurnRow from, journal.find_turn(replay.source, replay.from));
    plan.from_ = from.position;
  }
  for (const Replay::Override& change : replay.overrides) {
    CARREL_ASSIGN(const TurnRow turn, journal.find_turn(replay.source, change.turn));
    if (turn.position < plan.from_) {
      return Error{Code::kInvalid, 0,
                   "turn '" + turn.name + "' lies before the one that the replay begins with",
                   "begin with it, or earlier"};
    }
    const bool added = change.name.empty()
                           ? plan.outputs_.emplace(turn.position, change.value).second
                           : plan.inputs_[turn.position].emplace(change.name, change.value).second;
    if (!added) {
      return Error{Code::kInvalid, 0, "turn '" + turn.name + "' is changed twice", {}};
    }
  }
  return plan;
}

std::string ReplayPlan::to_json() const {
  Json json{{"from", from_}, {"mode", mode_ == Replay::Mode::kLive ? "live" : "recorded"}};
  Json changes = Json::array();
  for (const auto& [position, value] : outputs_) {
    changes.push_back({{"turn", position}, {"output", value}});
  }
  for (const auto& [position, inputs] : inputs_) {
    for (const auto& [name, value] : inputs) {
      changes.push_back({{"turn", position}, {"input", name}, {"value", value}});
    }
  }
  json["overrides"] = changes;
  return to_text(json);
}

Result<ReplayPlan> ReplayPlan::load(Journal& journal, const ExecutionRow& execution) {
  ReplayPlan plan;
  CARREL_ASSIGN(plan.source_, journal.turns(execution.source));
  CARREL_ASSIGN(const Json json, parse_json(execution.replay, "the plan of the replay"));
  if (!json.is_object()) {
    return Error{Code::kInvalid, 0, "the plan of the replay is damaged", {}};
  }
  plan.from_ = json.value("from", std::int64_t{1});
  plan.mode_ = json.value("mode", "") == "live" ? Replay::Mode::kLive : Replay::Mode::kRecorded;
  for (const Json& change : json.value("overrides", Json::array())) {
    const auto position = change.value("turn", std::int64_t{0});
    if (change.contains("output")) {
      plan.outputs_.emplace(position, change.value("output", ""));
    } else {
      plan.inputs_[position].emplace(change.value("input", ""), change.value("value", ""));
    }
  }
  return plan;
}

Result<TurnRow> ReplayPlan::source_turn(std::int64_t position, const std::string& name) const {
  const auto found = std::find_if(source_.begin(), source_.end(), [&](const TurnRow& turn) {
    return turn.position == position &&
           (turn.state == TurnState::kFinished || turn.state == TurnState::kCached);
  });
  if (found == source_.end() || found->name != name) {
    return Error{Code::kConflict, 0,
                 "turn " + std::to_string(position) + " of the source is not '" + name + "'",
                 "the flow has changed since: begin the replay with an earlier turn"};
  }
  return *found;
}

std::optional<std::string> ReplayPlan::output(std::int64_t position) const {
  const auto found = outputs_.find(position);
  return found == outputs_.end() ? std::nullopt : std::optional(found->second);
}

Result<TurnSubject> ReplayPlan::change(std::int64_t position, TurnSubject subject) const {
  const auto changes = inputs_.find(position);
  if (changes == inputs_.end()) {
    return subject;
  }
  for (const auto& [name, value] : changes->second) {
    const auto input =
        std::find_if(subject.inputs.begin(), subject.inputs.end(),
                     [&key = name](const KeyPart& part) { return part.name == key; });
    if (input == subject.inputs.end() && name != "prompt") {
      return Error{Code::kInvalid,
                   0,
                   "turn " + std::to_string(position) + " has no input '" + name + "'",
                   {}};
    }
    (input == subject.inputs.end() ? subject.prompt : input->value) = value;
  }
  return subject;
}

}  // namespace carrel::journal
