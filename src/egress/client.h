#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "egress/registration.h"
#include "storage/home.h"

namespace carrel::egress {

// Stores the registration and has the egress process, which is started if there is none, serve the
// sandbox. When this returns, its policy is in force.
Status enroll(const storage::Home& home, const Registration& registration);
// Changes what a sandbox may reach, while it runs.
Status change(const storage::Home& home, const std::string& id, policy::NetworkPolicy policy);
// Has a sandbox served that is registered, after the death of the egress process.
Status revive(const storage::Home& home, const std::string& id);
// The sandbox ended.
void forget(const storage::Home& home, const std::string& id);

struct Usage {
  std::uint64_t bytes_out = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t connections = 0;
  std::uint64_t live = 0;
  std::uint64_t denied = 0;
};
Result<Usage> usage(const storage::Home& home, const std::string& id);

}  // namespace carrel::egress
