#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "egress/registration.h"
#include "storage/home.h"

namespace carrel::egress {

// Has the egress process, which is started if there is none, serve a sandbox that is registered. When
// this returns, its policy is in force.
Status revive(const storage::Home& home, const std::string& id);
// Changes what a sandbox may reach, while it runs.
Status change(const storage::Home& home, const std::string& id, policy::NetworkPolicy policy);

struct Usage {
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t connections = 0;
  std::uint64_t live = 0;
  std::uint64_t denied = 0;
};
Result<Usage> usage(const storage::Home& home, const std::string& id);

}  // namespace carrel::egress
