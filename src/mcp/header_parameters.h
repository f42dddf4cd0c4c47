#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "mcp/message.h"

namespace carrel::mcp {

// A parameter of a tool that is sent as a header as well (`x-mcp-header` of its schema), so that
// what stands between client and server can see it. Modern, and over HTTP alone.
struct HeaderParameter {
  std::vector<std::string> path;  // of properties, from the top of the arguments
  std::string header;             // what follows "Mcp-Param-"
};

// Those of a schema. One that names a header in a place, of a type or in a way that it may not is
// an error: its tool cannot be used.
Result<std::vector<HeaderParameter>> header_parameters(const Json& schema);

// The headers for these arguments.
std::vector<std::pair<std::string, std::string>> header_values(
    const std::vector<HeaderParameter>& parameters, const Json& arguments);

}  // namespace carrel::mcp
