#pragma once

#include <vector>

#include "base/result.h"
#include "mcp/servers.h"
#include "tools/registry.h"

namespace carrel::tools {

// The tools of MCP servers, under their exposed names. Returns those that were refused, and why: a
// name that is taken stays with the tool that has it. `servers` is borrowed.
std::vector<Error> add_mcp_tools(mcp::Servers& servers, Registry& registry);

}  // namespace carrel::tools
