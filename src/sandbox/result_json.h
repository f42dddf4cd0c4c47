#pragma once

#include <string>

#include "sandbox/exec_result.h"

namespace carrel::sandbox {

// A result as one JSON object, with the same names everywhere: command line, API, SDKs, MCP.
// Streams that are not UTF-8 are there as stdout_b64 and stderr_b64 as well.
std::string to_json(const ExecResult& result);

}  // namespace carrel::sandbox
