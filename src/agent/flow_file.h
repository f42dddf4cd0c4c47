#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::agent {

// What an agent is asked, one turn after the other. A file of it is TOML: `name`, perhaps `profile`
// (a path, seen from the file), and `prompts`, a list of texts, or [[turns]] with `prompt` and
// perhaps `name` each.
struct FlowFile {
  struct Turn {
    std::string name;  // empty: it gets one
    std::string prompt;
  };
  std::string name;
  std::string profile;
  std::vector<Turn> turns;
};
inline constexpr std::size_t kMostTurns = 1000;

Result<FlowFile> parse_flow(std::string_view text, std::string_view path);

}  // namespace carrel::agent
