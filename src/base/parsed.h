#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace carrel {

using Bytes = std::span<const std::uint8_t>;

// What a parser makes of the first bytes of a stream, all of which it is given each time. A refusal
// is for good: more bytes never change it.
template <typename T>
struct [[nodiscard]] Parsed {
  enum class State { kNeedMore, kParsed, kRefused };

  static Parsed need_more() { return {}; }
  static Parsed refused(std::string_view reason) { return {State::kRefused, {}, 0, reason}; }
  static Parsed done(T value, std::size_t used) {
    return {State::kParsed, std::move(value), used, {}};
  }

  [[nodiscard]] bool needs_more() const { return state == State::kNeedMore; }
  [[nodiscard]] bool parsed() const { return state == State::kParsed; }
  [[nodiscard]] bool is_refused() const { return state == State::kRefused; }

  State state = State::kNeedMore;
  T value{};                // of what was parsed
  std::size_t used = 0;     // how many bytes it took
  std::string_view reason;  // of a refusal; a literal
};

inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace carrel
