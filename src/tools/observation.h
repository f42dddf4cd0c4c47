#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace carrel::tools {

// What a model sees of a long text. Every cut is marked.

inline constexpr std::size_t kMostLines = 200;
inline constexpr std::size_t kLongestLine = 2000;           // bytes
inline constexpr std::size_t kLongestObservation = 10'000;  // characters

struct Observation {
  std::string text;
  bool cut = false;
};

// At most kMostLines lines, the first and the last ones, of at most kLongestLine bytes each. Bytes
// that are not UTF-8 become U+FFFD; a character is never cut in two.
Observation cut_output(std::string_view text);

// The beginning and the end of a text that has more characters than that.
Observation cut_observation(std::string_view text, std::size_t most = kLongestObservation);

}  // namespace carrel::tools
