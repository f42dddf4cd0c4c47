#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace carrel::sandbox {

// Keeps the first and the last part of a stream of any length in bounded memory.
class Capture {
 public:
  static constexpr std::size_t kPart = 5U << 20;

  void add(std::string_view data);
  [[nodiscard]] bool cut() const { return total_ > head_.size() + tail_.size(); }
  [[nodiscard]] std::uint64_t total() const { return total_; }
  // The first part, a line that says how much is missing, and the last part.
  [[nodiscard]] std::string text() const;

 private:
  std::string head_;
  std::string tail_;  // a ring once it is full
  std::size_t tail_start_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace carrel::sandbox
