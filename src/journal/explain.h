#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "journal/journal.h"

namespace carrel::journal {

// Why a turn was or was not taken from the record.
struct Explanation {
  TurnRow turn;
  // The finished turn that it is compared with: the one that it was taken from, or else the newest
  // of its flow and name before it. Nothing: there was none.
  std::optional<TurnRow> nearest;
  std::vector<PartChange> changes;  // from that one to this one
};
Result<Explanation> explain(Journal& journal, const TurnRow& turn);

}  // namespace carrel::journal
