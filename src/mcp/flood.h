#pragma once

#include <cstddef>

#include "base/result.h"

namespace carrel::mcp {

// How much a server may say before it answers one request.
inline constexpr std::size_t kMostBytes = 64U << 20;
inline constexpr std::size_t kMostMessages = 20'000;

inline Status check_flood(std::size_t bytes, std::size_t messages) {
  if (bytes <= kMostBytes && messages <= kMostMessages) {
    return {};
  }
  return Error{Code::kResource, 0, "the MCP server says too much and does not answer", {}};
}

}  // namespace carrel::mcp
