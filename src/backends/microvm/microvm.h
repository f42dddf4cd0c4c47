#pragma once

#include <string>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::microvm {

// Sandboxes in a virtual machine each, with a kernel of its own. The guest builds its room in it as
// on a host; what it sees of the host is a read-only block device. Where one of the same shape was
// saved when it had booted, it goes on from there.
class Machines final : public sandbox::Walls {
 public:
  Result<std::string> describe(const policy::Spec& spec) const override;
  [[nodiscard]] std::string warning(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const override;
  [[nodiscard]] std::uint32_t own_processes() const override;
  [[nodiscard]] std::uint64_t own_memory() const override;
  [[nodiscard]] sandbox::Lock lock() const override { return sandbox::Lock::kGuests; }
  [[nodiscard]] sandbox::Kernel kernel() const override { return sandbox::Kernel::kMachines; }
  [[nodiscard]] policy::Furnisher furnisher() const override { return policy::Furnisher::kGuest; }
  [[nodiscard]] std::chrono::milliseconds patience() const override;
  void settle_origin(int complaints, sandbox::Origin& origin) const override;
  void sweep(const std::string& folder, const std::string& installation) const override;
};

}  // namespace carrel::microvm
