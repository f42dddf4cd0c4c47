#include "journal/explain.h"

#include "journal/store.h"

namespace carrel::journal {

Result<Explanation> explain(Journal& journal, const TurnRow& turn) {
  Explanation explanation{turn, std::nullopt, {}};
  if (!turn.source.empty()) {
    CARREL_ASSIGN(explanation.nearest, journal.rows().turn(turn.source));
  } else {
    CARREL_ASSIGN(const ExecutionRow execution, journal.find_execution(turn.execution));
    CARREL_ASSIGN(explanation.nearest, journal.rows().turn_before(execution.flow, turn));
  }
  if (explanation.nearest.has_value()) {
    explanation.changes = compare_parts(explanation.nearest->parts, turn.parts);
  }
  return explanation;
}

}  // namespace carrel::journal
