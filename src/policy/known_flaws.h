#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Programs that build walls and are known to have let somebody out, by the version that they tell.
namespace carrel::policy {

struct Version {
  std::array<unsigned, 3> numbers{};
  auto operator<=>(const Version&) const = default;
};
// Of "bubblewrap 0.8.0", "runc 1.1.5+ds1", "crun 1.8" or "1.15.0": the last word that is one. A
// number that is missing is zero, and what follows the numbers is left out.
std::optional<Version> parse_version(std::string_view text);

// What is known of a program.
struct Builder {
  enum class Rights { kCallers, kSetUid };
  std::string reported;  // its name and version: "runc 1.1.5+ds1"
  Rights rights = Rights::kCallers;
};

// The CVEs that the reported version has; none for a program that nothing is known of.
std::vector<std::string_view> known_flaws(const Builder& builder);

// A sentence that names them, and how much a version says; empty where there are none.
std::string flaw_warning(const Builder& builder);

}  // namespace carrel::policy
