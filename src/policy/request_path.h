#pragma once

#include <string_view>

namespace carrel::policy {

// Whether every server reads the path in the same way: it begins with '/', has no empty, "." or
// ".." segment, no ';' or '\', and nothing is percent-encoded that need not be, or that a server
// could decode into a separator. A rule with a path decides about such paths only.
bool is_plain_path(std::string_view path);

// '*' in the pattern stands for any text, '/' included; every other byte for itself.
bool path_matches(std::string_view pattern, std::string_view path);

}  // namespace carrel::policy
