#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace carrel::mcp {

inline constexpr std::size_t kLongestToolName = 64;

// What a server's tool is called among the tools of all servers: `mcp_<server>_<tool>`, where every
// character that is not a letter, a digit, '_' or '-' is '_', several of '_' are one, none is at an
// end, and what is longer than 64 is cut. Two tools may have the same: whoever makes a list of them
// refuses the second.
std::string exposed_name(std::string_view server, std::string_view tool);

}  // namespace carrel::mcp
