#pragma once

#include <string>
#include <string_view>

namespace carrel {

// Whether the bytes are UTF-8 as Unicode defines it: no overlong forms, no surrogates.
bool valid_utf8(std::string_view bytes);

// The same text with U+FFFD in place of every part that is not.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace carrel
