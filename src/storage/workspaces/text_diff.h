#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::storage {

// A piece of a file that changed, with up to three lines before and after it that did not. Lines
// keep their ends; the last of a file may have none.
struct Hunk {
  std::size_t old_start = 0;  // from 1; 0 where there are no lines
  std::size_t old_lines = 0;
  std::size_t new_start = 0;
  std::size_t new_lines = 0;
  struct Line {
    char kind;  // ' ', '-' or '+'
    std::string text;
  };
  std::vector<Line> lines;
};

// Contents with a NUL byte near their beginning, or larger than what is worth comparing line by
// line, are binary.
inline constexpr std::size_t kLargestText = 4U << 20;
bool is_binary(std::string_view contents);

// Myers' algorithm, bounded: two texts that have little in common become one hunk.
std::vector<Hunk> compare_text(std::string_view before, std::string_view after);

}  // namespace carrel::storage
