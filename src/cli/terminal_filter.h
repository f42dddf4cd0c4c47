#pragma once

#include <string>
#include <string_view>

namespace carrel::cli {

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
