#include "server/byte_range.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace carrel::server {

namespace {

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
}

}  // namespace

ByteRange parse_byte_range(std::string_view header, std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  const std::size_t dash = header.find('-');
  if (!header.starts_with(kUnit) || dash == std::string_view::npos) {
    return {};
  }
  const std::string_view first_text = header.substr(kUnit.size(), dash - kUnit.size());
  const std::string_view last_text = header.substr(dash + 1);
  const std::optional<std::uint64_t> first = number_of(first_text);
  const std::optional<std::uint64_t> last = number_of(last_text);
  if (first_text.empty() && last.has_value()) {  // so many from the end
    const std::uint64_t count = std::min(*last, size);
    return count == 0 ? ByteRange{ByteRange::Kind::kUnsatisfiable}
                      : ByteRange{ByteRange::Kind::kPart, size - count, count};
  }
  if (!first.has_value() || (!last_text.empty() && (!last.has_value() || *last < *first))) {
    return {};
  }
  if (*first >= size) {
    return {ByteRange::Kind::kUnsatisfiable};
  }
  const std::uint64_t end = last_text.empty() ? size - 1 : std::min(*last, size - 1);
  return {ByteRange::Kind::kPart, *first, end - *first + 1};
}

}  // namespace carrel::server
