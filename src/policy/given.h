#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace carrel::policy {

// A value as somebody wrote it: `name` is the option or key in their own spelling (`--memory`,
// `memory_limit`), `text` is what they gave it. Both are only borrowed.
struct Given {
  std::string_view name;
  std::string_view text;
};

// All parts, one after the other.
std::string concat(std::initializer_list<std::string_view> parts);

// Text that is safe to show on one line: control bytes, invalid UTF-8, backslashes and characters
// that change the direction or the width of a line are escaped, and what is longer than about
// `limit` bytes is cut and ends in "...".
std::string printable(std::string_view text, std::size_t limit = 200);

// The same, short and between single quotes.
std::string quote(std::string_view text);

// Whether the text is valid UTF-8 without control bytes (NUL included).
enum class TextShape { kPlain, kControlBytes, kInvalidUtf8 };
TextShape shape_of(std::string_view text);

// "NAME 'TEXT': reason (hint)". The first is for input that makes no sense, the second for parts of
// Carrel that do not exist yet.
Error bad_value(const Given& given, std::string_view reason, std::string hint = {});
Error not_built(const Given& given, std::string_view what_this_version_does);

}  // namespace carrel::policy
