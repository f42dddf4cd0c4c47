#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace carrel::cli {

// How many bytes the character at the beginning of the text has if it is one that a terminal obeys
// or that changes the direction of what is shown: a C1 control or a bidirectional control in UTF-8.
// 0 for every other.
std::size_t hidden_character(std::string_view text);

// Makes a sandbox's output harmless for the terminal it is shown on. Text, line ends, tabs and
// colours pass; every other escape sequence and control character is shown in caret notation, so
// that nothing can set the title or the clipboard, move the cursor over earlier lines or make the
// terminal answer. Bytes that are not UTF-8 pass as they are; C1 controls and the characters that
// change the direction of text do not.
class TerminalFilter {
 public:
  // The next piece of the stream. A sequence that is cut by its end is kept for the next piece.
  std::string filter(std::string_view data);
  // What was kept, at the end of the stream.
  std::string finish();

 private:
  void take(std::string& out, std::string_view& data);
  std::string pending_;
};

}  // namespace carrel::cli
