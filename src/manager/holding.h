#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manager/commands.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::manager {

// What holds a long-lived sandbox up. One that nothing holds is put to rest, or has ended.
struct Holder {
  enum class By {
    kCommand,     // one that runs in it
    kConnection,  // a request or a command line that is in it
    kLease,       // until its deadline, which the guest keeps
    kIdleTime,    // somebody used it a short while ago
    kKeep,        // it stays until it is removed
  };
  By by = By::kKeep;
  std::string what = {};      // in words; of a command what the guest calls it, which is hostile
  std::uint64_t command = 0;  // its number
  std::int64_t until_ms = 0;  // in milliseconds since 1970; 0: nobody knows
};
// "command", "connection", "lease", "idle_time", "keep"
std::string_view name_of(Holder::By by);

// Of one that runs or is paused, with the commands that its guest told; none of any other.
std::vector<Holder> holders_of(const storage::Home& home, const storage::SandboxRow& row,
                               const std::vector<KnownCommand>& commands);

}  // namespace carrel::manager
