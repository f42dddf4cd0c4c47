#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "journal/journal.h"
#include "journal/run.h"

namespace carrel::journal {

// A replay whose selectors have been found in its source. It is stored with the execution, so that
// one that was killed goes on as it was begun.
class ReplayPlan {
 public:
  // kNotFound and kInvalid for what a selector does not or not clearly name.
  static Result<ReplayPlan> make(Journal& journal, const Replay& replay);
  static Result<ReplayPlan> load(Journal& journal, const ExecutionRow& execution);
  [[nodiscard]] std::string to_json() const;

  [[nodiscard]] Replay::Mode mode() const { return mode_; }
  // Whether the turn at that position is taken from the source as it is.
  [[nodiscard]] bool is_before(std::int64_t position) const { return position < from_; }
  // The source's turn there; kConflict if it has none, or one of another name.
  Result<TurnRow> source_turn(std::int64_t position, const std::string& name) const;
  [[nodiscard]] const std::vector<TurnRow>& source() const { return source_; }
  // What the turn there is to have answered.
  [[nodiscard]] std::optional<std::string> output(std::int64_t position) const;
  // With the inputs that are others; kInvalid for an input that the turn does not have.
  Result<TurnSubject> change(std::int64_t position, TurnSubject subject) const;

 private:
  std::vector<TurnRow> source_;
  std::int64_t from_ = 1;
  Replay::Mode mode_ = Replay::Mode::kRecorded;
  std::map<std::int64_t, std::string> outputs_;
  std::map<std::int64_t, std::map<std::string, std::string>> inputs_;
};

}  // namespace carrel::journal
