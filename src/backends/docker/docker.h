#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

struct Facts;

// Walls that Docker's engine builds: a container, in which the guest makes its room as it does
// without one.
class Containers final : public sandbox::Walls {
 public:
  Containers();
  ~Containers() override;

  Result<std::string> describe(const policy::Spec& spec) const override;
  [[nodiscard]] std::string warning(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const override;
  [[nodiscard]] std::uint32_t own_processes() const override { return 0; }
  [[nodiscard]] sandbox::Lock lock() const override { return sandbox::Lock::kGuests; }
  [[nodiscard]] policy::Furnisher furnisher() const override { return policy::Furnisher::kGuest; }
  [[nodiscard]] std::string holds_limits() const override { return "docker"; }
  void sweep(const std::string& folder, const std::string& installation) const override;

 private:
  // What an engine said about itself a moment ago.
  struct Seen;
  Result<Facts> facts(const std::string& address) const;

  mutable std::mutex mutex_;
  mutable std::map<std::string, Seen> seen_;
};

}  // namespace carrel::docker
