#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "manager/making.h"
#include "storage/box.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::manager {

// A sandbox that is stopped has no processes and no memory. Its settings, its name and its
// workspace wait for it to be started again, under the same id.

// kConflict for one that has no workspace of a name: nothing of it would come back.
Status stop_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                    const std::string& reason, storage::Wake wake);

// How it is asked for again: its mounts are opened and judged anew. kConflict when its workspace is
// gone.
Result<Wish> wish_of_stopped(const storage::Home& home, const storage::SandboxRow& row);

// Starts one that is stopped; one that runs is fine. Waits for whoever is at that already.
Status start_sandbox(storage::Home& home, const storage::SandboxRow& row,
                     const FinishRestore& finish);

// The sandbox that a person means, to be used: one that was stopped for being idle is started.
Result<storage::BoxRecord> find_awake(storage::Home& home, const std::string& named,
                                      const FinishRestore& finish);

// Ends a sandbox that a person names, be it stopped; returns its id.
Result<std::string> remove_named(storage::Home& home, const std::string& named, int grace_ms);
// That one is stopped, and has ended from now on.
Status end_stopped(const storage::Home& home, const std::string& id);
std::vector<std::string> stopped_ids(const storage::Home& home);
// "sandbox ID is stopped"
Error is_stopped(const storage::SandboxRow& row);

// How a sandbox was asked for, without its opened mounts.
std::string wish_to_json(const Wish& wish);
Result<Wish> wish_from_json(const std::string& text);

}  // namespace carrel::manager
