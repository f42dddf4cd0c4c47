#pragma once

#include <optional>
#include <set>

#include "journal/replay_plan.h"
#include "journal/run.h"

namespace carrel::journal {

// Where a run is.
struct Run::Parts {
  // What the files are to be, and whether the workspace is known to hold them.
  FilesMark files;
  bool at_hand = false;
  std::string start_holder;  // of files that the next turn begins with, until it has begun
  std::int64_t position = 0;
  std::set<std::string> names;  // of its turns
  Turn* open = nullptr;         // the turn whose body runs
  bool ended = false;
  std::optional<ReplayPlan> plan;
};

// A JSON object with the members of another: objects are merged, everything else is replaced. Both
// are texts; kInvalid for what is no object, kResource for what would be larger than 64 KiB.
Result<std::string> merge_logs(const std::string& logs, const std::string& added);

}  // namespace carrel::journal
