#pragma once

#include <string>
#include <vector>

#include "cli/context.h"
#include "journal/journal.h"

// The parts of `carrel flow`. Each returns the exit status; `words` are those after the action.
namespace carrel::cli {

using Words = std::vector<std::string>;

// flow_show.cc
int list_flows(const Context& context, journal::Journal& journal);
int list_newest_turns(const Context& context, journal::Journal& journal);
int show_flow(const Context& context, journal::Journal& journal, const std::string& named);
int explain_turn(const Context& context, journal::Journal& journal, const Words& words);

// flow_files.cc. CRITICAL: the journal is not open while these run, but for moments.
int diff_turn(const Context& context, const Words& words);
int fork_turn(const Context& context, const Words& words);
int roll_back(const Context& context, const Words& words);
int replay_flow(const Context& context, const std::string& named);
int remove_flows(const Context& context, const Words& words);
// What it does: those of `words` that are gone are in `removed`, with their plans, what they kept
// and the workspaces that were made for them. The first that cannot be removed ends it.
Status forget_flows(const Words& words, Words& removed);

}  // namespace carrel::cli
