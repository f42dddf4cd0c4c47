#pragma once

#include <string_view>

namespace carrel {

// What `carrel version` and GET /v1/version say.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace carrel
