#pragma once

#include <string>

#include "backends/docker/engine_walls.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// Containers of an engine whose runtime is Kata's: each is said to be in a virtual machine of its
// own. No socket of the host's leads in there and no descriptor, so everything goes over the
// container's standard input and output, as it does over a machine's line; the guest builds its
// room in it. Unverified: no machine of Kata's was at hand, only another runtime in its place.
class KataContainers final : public EngineWalls {
 public:
  using EngineWalls::EngineWalls;

  Result<std::string> describe(const policy::Spec& spec) const override;
  [[nodiscard]] std::string warning(const policy::Spec& spec) const override;
  [[nodiscard]] std::uint32_t own_processes() const override;
  [[nodiscard]] policy::Furnisher furnisher() const override { return policy::Furnisher::kGuest; }
  [[nodiscard]] sandbox::Kernel kernel() const override { return sandbox::Kernel::kMachines; }
  [[nodiscard]] sandbox::LimitHolders limit_holders(const policy::Spec& spec) const override;

 private:
  Result<sandbox::RoomStarted> start_at(const Engine& engine, const std::string& address,
                                        const sandbox::RoomRequest& request) const override;
};

}  // namespace carrel::docker
