#pragma once

#include <string>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::oci {

// Rooms that an OCI runtime builds, runc or crun, without an engine above it.
class Runtimes final : public sandbox::Walls {
 public:
  Result<std::string> describe(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const override;
  [[nodiscard]] std::uint32_t own_processes() const override { return 0; }
  [[nodiscard]] sandbox::Building building() const override;
  [[nodiscard]] sandbox::Lock lock() const override { return sandbox::Lock::kGuests; }
};

}  // namespace carrel::oci
