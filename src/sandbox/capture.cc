#include "sandbox/capture.h"

#include <algorithm>

namespace carrel::sandbox {

void Capture::add(std::string_view data) {
  total_ += data.size();
  std::size_t first = std::min(data.size(), kPart - head_.size());
  head_.append(data.substr(0, first));
  data.remove_prefix(first);
  if (data.size() > kPart) {
    data.remove_prefix(data.size() - kPart);
  }
  std::size_t growing = std::min(data.size(), kPart - tail_.size());
  tail_.append(data.substr(0, growing));
  data.remove_prefix(growing);
  while (!data.empty()) {
    std::size_t piece = std::min(data.size(), kPart - tail_start_);
    std::copy_n(data.data(), piece, tail_.begin() + static_cast<std::ptrdiff_t>(tail_start_));
    tail_start_ = (tail_start_ + piece) % kPart;
    data.remove_prefix(piece);
  }
}

std::string Capture::text() const {
  std::string text = head_;
  if (cut()) {
    std::uint64_t missing = total_ - head_.size() - tail_.size();
    text += "\n[carrel: " + std::to_string(missing) + " bytes are not shown here]\n";
  }
  text.append(tail_, tail_start_);
  text.append(tail_, 0, tail_start_);
  return text;
}

}  // namespace carrel::sandbox
