#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What file workers do with names and text. Pure functions, without memory of their own.
namespace carrel::guest {

// Whether a name matches a pattern of `*`, `?`, `[a-z]` and `[!a-z]`; `\` takes the next character
// as it is. Bytes are compared, and the time is bounded by the product of the sizes.
bool matches_pattern(std::string_view name, std::string_view pattern);

// What a listing of a project leaves out: directories that tools fill, files that tools write, and
// binary files, by their endings. Whole names are compared: `rebuild` is not `build`.
enum class NameOf { kFile, kDirectory };
bool is_usual_clutter(std::string_view name, NameOf kind);

enum class LetterCase { kExact, kIgnored };
// Where `text` begins in `line`; npos if it does not.
std::size_t find_text(std::string_view line, std::string_view text, LetterCase letters);

// The occurrences of a text in contents, found from left to right without overlap.
struct Occurrences {
  static constexpr std::size_t kNamed = 20;
  std::uint64_t count = 0;
  std::size_t first = 0;             // where the first begins
  std::uint64_t lines[kNamed] = {};  // the lines of the first few, counted from 1
};
Occurrences find_occurrences(std::string_view contents, std::string_view text);

// Takes contents piece by piece and says which part of each belongs to the lines `first` to `last`,
// counted from 1.
class LineRange {
 public:
  LineRange(std::uint64_t first, std::uint64_t last) : first_(first), last_(last) {}

  // The part of the next piece that is wanted.
  std::string_view take(std::string_view piece);
  // Whether nothing of what follows is wanted.
  [[nodiscard]] bool over() const { return line_ > last_; }
  // How many lines there were. A text after the last newline is one.
  [[nodiscard]] std::uint64_t lines() const { return line_ - 1 + (inside_line_ ? 1 : 0); }

 private:
  std::uint64_t first_;
  std::uint64_t last_;
  std::uint64_t line_ = 1;  // the line that the next byte belongs to
  bool inside_line_ = false;
};

}  // namespace carrel::guest
