#pragma once

#include <string>

#include "backends/docker/engine_walls.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// Rooms behind gVisor's kernel in containers of an engine whose runtime is runsc. There nobody can
// mount, so the engine furnishes the room; the guest calls at a socket of the host's, which the
// runtime has to allow (--host-uds=open), and connections come in as descriptors.
class GvisorContainers final : public EngineWalls {
 public:
  using EngineWalls::EngineWalls;

  Result<std::string> describe(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  [[nodiscard]] std::uint32_t own_processes() const override;
  [[nodiscard]] sandbox::Kernel kernel() const override { return sandbox::Kernel::kGvisors; }
  [[nodiscard]] sandbox::LimitHolders limit_holders(const policy::Spec& spec) const override;

 private:
  Result<sandbox::RoomStarted> start_at(const Engine& engine, const std::string& address,
                                        const sandbox::RoomRequest& request) const override;
};

}  // namespace carrel::docker
