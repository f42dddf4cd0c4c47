#include "policy/request_path.h"

#include <cstddef>

namespace carrel::policy {
namespace {

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

bool is_path_character(char c) {
  constexpr std::string_view kOthers = "/!$&'()*+,=:@";
  return is_unreserved(c) || kOthers.find(c) != std::string_view::npos;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// "%XX" at the start of the text, for a byte that has to be written so.
bool is_plain_escape(std::string_view text) {
  if (text.size() < 3 || hex_value(text[1]) < 0 || hex_value(text[2]) < 0) {
    return false;
  }
  const int value = hex_value(text[1]) * 16 + hex_value(text[2]);
  constexpr std::string_view kSeparators = "/\\;%?#";
  const char byte = static_cast<char>(value);
  return value >= 0x20 && value != 0x7f && !is_path_character(byte) &&
         kSeparators.find(byte) == std::string_view::npos;
}

}  // namespace

bool is_plain_path(std::string_view path) {
  if (!path.starts_with('/')) {
    return false;
  }
  for (std::size_t at = 0; at < path.size(); ++at) {
    if (path[at] == '%') {
      if (!is_plain_escape(path.substr(at))) {
        return false;
      }
      at += 2;
    } else if (!is_path_character(path[at])) {
      return false;
    }
  }
  std::string_view rest = path.substr(1);
  for (;;) {
    const std::size_t slash = rest.find('/');
    const std::string_view segment = rest.substr(0, slash);
    const bool last = slash == std::string_view::npos;
    if (segment == "." || segment == ".." || (segment.empty() && !last)) {
      return false;
    }
    if (last) {
      return true;
    }
    rest.remove_prefix(slash + 1);
  }
}

bool path_matches(std::string_view pattern, std::string_view path) {
  std::size_t p = 0;
  std::size_t at = 0;
  std::size_t star = std::string_view::npos;  // the last '*' that was met
  std::size_t resume = 0;                     // where its text ends so far
  while (at < path.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = at;
    } else if (p < pattern.size() && pattern[p] == path[at]) {
      ++p;
      ++at;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

}  // namespace carrel::policy
