#pragma once

#include <string>

#include "backends/docker/making.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// Walls that an engine builds, with whatever runtime. All of them share what is known of engines:
// who found that one does not answer spares the others the waiting.
class EngineWalls : public sandbox::Walls {
 public:
  explicit EngineWalls(const KnownEngines& engines) : engines_(&engines) {}

  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const final;
  [[nodiscard]] sandbox::Lock lock() const final { return sandbox::Lock::kGuests; }
  void sweep(const std::string& folder, const std::string& installation) const final;

 protected:
  [[nodiscard]] const KnownEngines& engines() const { return *engines_; }

 private:
  virtual Result<sandbox::RoomStarted> start_at(const Engine& engine, const std::string& address,
                                                const sandbox::RoomRequest& request) const = 0;

  const KnownEngines* engines_;
};

}  // namespace carrel::docker
