#pragma once

#include <string>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::bubblewrap {

// Rooms that Debian's bubblewrap builds, or another one in a system's folder.
class Bubblewrap final : public sandbox::Walls {
 public:
  Result<std::string> describe(const policy::Spec& spec) const override;
  [[nodiscard]] std::string warning(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const override;
  [[nodiscard]] std::uint32_t own_processes() const override { return 1; }
};

}  // namespace carrel::bubblewrap
