#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "cli/context.h"

namespace carrel::cli {

// "12 MB"
std::string size_text(std::uint64_t bytes);

// On a terminal, one line that is written over and gone in the end; nothing anywhere else.
class ProgressLine {
 public:
  explicit ProgressLine(const Context& context);
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows what `text` returns; it is called only when it is time for that.
  template <typename Text>
  void show(Text text) {
    if (is_due()) {
      write(text());
    }
  }
  void clear();

 private:
  bool is_due();
  void write(const std::string& text);

  bool shown_;
  bool written_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace carrel::cli
