#pragma once

#include <string>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::oci {

// Rooms behind gVisor's kernel, which the runtime runsc builds, without an engine above it.
class Gvisor final : public sandbox::Walls {
 public:
  Result<std::string> describe(const policy::Spec& spec) const override;
  [[nodiscard]] std::string warning(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const override;
  [[nodiscard]] std::uint32_t own_processes() const override;
  [[nodiscard]] std::uint64_t own_memory() const override;
  [[nodiscard]] std::uint32_t tasks_for_each() const override;
  [[nodiscard]] sandbox::Lock lock() const override { return sandbox::Lock::kGuests; }
  [[nodiscard]] sandbox::Kernel kernel() const override { return sandbox::Kernel::kGvisors; }
};

}  // namespace carrel::oci
