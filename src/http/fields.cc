#include "http/fields.h"

#include <algorithm>

#include "base/ascii.h"

namespace carrel::http {

bool is_token(std::string_view text) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

bool is_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  return text;
}

std::string_view read_fields(std::string_view lines, std::vector<Header>& headers) {
  while (!lines.empty()) {
    const std::size_t end = lines.find("\r\n");
    if (end == std::string_view::npos) {
      return "a header has no end";
    }
    const std::string_view line = lines.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
      return "a header has no proper name";
    }
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (!is_value(value)) {
      return "a header has control characters";
    }
    if (headers.size() == kMostHeaders) {
      return "there are too many headers";
    }
    headers.push_back({lower(line.substr(0, colon)), std::string(value)});
    lines.remove_prefix(end + 2);
  }
  return {};
}

const Header* find_header(const std::vector<Header>& headers, std::string_view name) {
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [&](const Header& header) { return header.name == name; });
  return found == headers.end() ? nullptr : &*found;
}

std::size_t count_headers(const std::vector<Header>& headers, std::string_view name) {
  return static_cast<std::size_t>(std::count_if(
      headers.begin(), headers.end(), [&](const Header& header) { return header.name == name; }));
}

}  // namespace carrel::http
