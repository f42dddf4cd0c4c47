#pragma once

#include <string>

#include "base/result.h"
#include "storage/box.h"
#include "storage/box_use.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::manager {

// What a long-lived sandbox is, what it is meant to be, and why, in words. The two differ while
// somebody is at it.
struct Life {
  std::string state;
  std::string desired;
  std::string reason;
};
Life life_of(const storage::Home& home, const storage::SandboxRow& row);

// The row of the sandbox that a person means, also of one that is stopped or has ended.
Result<storage::SandboxRow> find_row(const storage::Home& home, const std::string& named);

// Begins to use a sandbox, and wakes it if it was put to rest because nobody did. kConflict for one
// that somebody paused.
Result<storage::BoxUse> begin_use(const storage::Home& home, const storage::BoxRecord& record);

}  // namespace carrel::manager
