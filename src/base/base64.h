#pragma once

#include <string>
#include <string_view>

namespace carrel {

// With padding, in the usual alphabet (RFC 4648).
std::string base64(std::string_view data);

}  // namespace carrel
