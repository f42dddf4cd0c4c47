#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace carrel::journal {

// How much of a text is kept where it is kept to be looked at.
inline constexpr std::size_t kLongestShown = 500;

// Whether a name says that its value is a secret: "authorization", "api_key", "X-Auth-Token",
// "password" and the like, in any case and with any separators. "max_tokens" is none.
bool is_secret_name(std::string_view name);

// A text as it is stored for people: cut after kLongestShown bytes at a character's end, with a
// mark that says how much there was.
std::string cap(std::string_view text);

// A JSON document as it is stored for people: values under secret names are "[redacted]", long
// texts are cut, and what is nested deeper than 32 or has more than 10,000 values is left out. What
// is no JSON is a text; "authorization: VALUE" and "NAME_TOKEN=VALUE" in a text are redacted, too.
std::string redact(std::string_view json_or_text);

// The same without cutting, and whether anything was redacted.
struct Redacted {
  std::string text;
  bool changed = false;
};
Redacted redact_whole(std::string_view json_or_text);

}  // namespace carrel::journal
