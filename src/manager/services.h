#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/service.h"
#include "sandbox/guest_stream.h"

namespace carrel::manager {

// How one of a sandbox's services is, as its guest says.
struct ServiceLife {
  std::string name;
  protocol::ServiceState state = protocol::ServiceState::kWaiting;
  std::uint32_t restarts = 0;
  std::uint64_t command = 0;          // whose output is its output; 0: it was never started
  std::optional<int> last_exit = {};  // of the time before; 128 + n after signal n
  std::uint64_t ready_ms = 0;         // how long it took, where it is ready
};
// "waiting", "starting", "ready"
std::string_view name_of(protocol::ServiceState state);

Result<std::vector<ServiceLife>> list_services(sandbox::GuestStream& stream);

bool all_ready(const std::vector<ServiceLife>& services);

// Asks until all of them are ready, the time is over, or `leave` says so; how they are then.
Result<std::vector<ServiceLife>> await_ready(sandbox::GuestStream& stream,
                                             std::chrono::milliseconds patience,
                                             const std::function<bool()>& leave = {});

}  // namespace carrel::manager
