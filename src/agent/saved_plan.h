#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/flow_file.h"
#include "agent/profile.h"
#include "base/result.h"
#include "journal/run.h"
#include "manager/making.h"
#include "storage/home.h"

namespace carrel::agent {

// What an execution was asked to do, so that it can be run again by its id alone: a private file,
// CARREL_HOME/agents/EXECUTION. The profile is in it as the operator wrote it, which is without the
// key of its model.
struct SavedPlan {
  Profile profile;
  FlowFile flow;  // all turns that are known so far
  std::string workspace;
  // How its sandbox was asked for: what the profile says, the options, and the files that they
  // name.
  std::optional<manager::Wish> wish = {};
  // Whose turns it takes from the journal. A task those of its own execution only.
  journal::Reuse reuse = journal::Reuse::kOwn;
};

Status save_plan(const storage::Home& home, const std::string& execution, const SavedPlan& plan);
// kNotFound for an execution that is none of an agent's.
Result<SavedPlan> load_plan(const storage::Home& home, const std::string& execution);
// One that is not there is fine.
Status forget_plan(const storage::Home& home, const std::string& execution);

}  // namespace carrel::agent
