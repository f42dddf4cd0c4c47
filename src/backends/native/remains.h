#pragma once

#include <string>

#include "base/result.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::native {

// Ends a long-lived sandbox: asks its processes to stop, ends them after `grace_ms`, and removes
// everything that belongs to it. Calling it again is fine.
Status remove_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                      const std::string& reason);

// Removes what is left of a long-lived sandbox whose first process is gone, or that was never
// finished, and notes why it ended. Several processes may do so at once.
Status bury(storage::Home& home, const std::string& id, const std::string& cgroup_parent,
            const std::string& reason);

// Buries every long-lived sandbox that is no longer alive. Those being made right now are spared.
void sweep_boxes(storage::Home& home);

}  // namespace carrel::native
