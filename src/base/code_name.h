#pragma once

#include <string_view>

#include "base/result.h"

namespace carrel {

// The name of a kind of failure, the same everywhere: command line, API, SDKs, MCP.
std::string_view code_name(Code code);

}  // namespace carrel
