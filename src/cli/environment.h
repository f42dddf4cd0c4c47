#pragma once

#include <span>
#include <string_view>

namespace carrel::cli {

// A variable of the caller's environment that Carrel reads.
struct EnvironmentName {
  std::string_view name;
  std::string_view help;  // one line, no full stop
};

// All of those whose names are Carrel's own.
std::span<const EnvironmentName> environment_names();

// Where state is kept if CARREL_HOME does not say.
inline constexpr std::string_view kDefaultHomes =
    "/var/lib/carrel for root, else $XDG_DATA_HOME/carrel or ~/.local/share/carrel";

}  // namespace carrel::cli
