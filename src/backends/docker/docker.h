#pragma once

#include <string>

#include "backends/docker/engine_walls.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// Walls that Docker's engine builds: a container, in which the guest makes its room as it does
// without one.
class Containers final : public EngineWalls {
 public:
  using EngineWalls::EngineWalls;

  Result<std::string> describe(const policy::Spec& spec) const override;
  [[nodiscard]] std::string warning(const policy::Spec& spec) const override;
  [[nodiscard]] std::uint32_t own_processes() const override { return 0; }
  [[nodiscard]] policy::Furnisher furnisher() const override { return policy::Furnisher::kGuest; }
  [[nodiscard]] sandbox::LimitHolders limit_holders(const policy::Spec& spec) const override;

 private:
  Result<sandbox::RoomStarted> start_at(const Engine& engine, const std::string& address,
                                        const sandbox::RoomRequest& request) const override;
};

}  // namespace carrel::docker
