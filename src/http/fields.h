#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace carrel::http {

// The lines of a head of HTTP/1, read strictly, for requests and for responses.

inline constexpr std::size_t kMostHeaders = 128;

struct Header {
  std::string name;  // lower case where it was read
  std::string value;
};

bool is_token(std::string_view text);  // a name of a header or a method
bool is_value(std::string_view text);  // nothing in it is a control character, but tabs

std::string_view trimmed(std::string_view text);  // without spaces and tabs at its ends

// Reads "name: value" lines, each with CR and LF at its end, up to the end of the text. Returns why
// they are refused, or nothing: folded lines, bare CR or LF, control characters and spaces around
// names are.
std::string_view read_fields(std::string_view lines, std::vector<Header>& headers);

// The first header of that name, which is in lower case; null: there is none.
const Header* find_header(const std::vector<Header>& headers, std::string_view name);
std::size_t count_headers(const std::vector<Header>& headers, std::string_view name);

}  // namespace carrel::http
