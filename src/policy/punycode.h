#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace carrel::policy {

// A label with letters of other scripts as its A-label ("bücher" is "xn--bcher-kva"), where every
// program gives the same one: the letters are lower case, composed, and of scripts that are written
// from left to right without context rules (Latin, Greek, Cyrillic, kana, Han and Hangul, see
// punycode.cc). ASCII letters of the label are lower case already. Nothing: the label is none of
// these, and its A-label has to be written by hand.
std::optional<std::string> to_a_label(std::string_view label);

}  // namespace carrel::policy
