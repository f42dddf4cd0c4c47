#include "cli/progress_line.h"

#include <unistd.h>

#include <utility>

#include "cli/output.h"

namespace carrel::cli {

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kMega = 1'000'000;
  if (bytes < 1000) {
    return std::to_string(bytes) + " B";
  }
  if (bytes >= 1000 * kMega) {
    return std::to_string(bytes / (1000 * kMega)) + "." +
           std::to_string(bytes / (100 * kMega) % 10) + " GB";
  }
  return bytes >= kMega ? std::to_string(bytes / kMega) + " MB"
                        : std::to_string((bytes + 999) / 1000) + " kB";
}

ProgressLine::ProgressLine(const Context& context)
    : shown_(!context.json() && ::isatty(STDERR_FILENO) != 0) {}

bool ProgressLine::is_due() {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now - last_ < std::chrono::milliseconds(100)) {
    return false;
  }
  last_ = now;
  return true;
}

void ProgressLine::write(const std::string& text) {
  written_ = true;
  print_error("\r\x1b[K" + printable(text));
}

void ProgressLine::clear() {
  if (std::exchange(written_, false)) {
    print_error("\r\x1b[K");
  }
}

}  // namespace carrel::cli
