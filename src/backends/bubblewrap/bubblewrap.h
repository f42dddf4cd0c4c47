#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::bubblewrap {

struct Version {
  std::array<unsigned, 3> numbers{};
  auto operator<=>(const Version&) const = default;
};
// Of "bubblewrap 0.8.0".
std::optional<Version> parse_version(std::string_view text);

// The first that can forbid user namespaces inside.
inline constexpr Version kOldest{{0, 8, 0}};

// Rooms that Debian's bubblewrap builds, or another one in a system's folder.
class Bubblewrap final : public sandbox::Walls {
 public:
  Result<std::string> describe(const policy::Spec& spec) const override;
  Status check(const policy::Spec& spec) const override;
  Result<sandbox::RoomStarted> start(const sandbox::RoomRequest& request) const override;
  [[nodiscard]] std::uint32_t own_processes() const override { return 1; }
};

}  // namespace carrel::bubblewrap
