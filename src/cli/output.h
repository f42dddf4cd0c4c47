#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/context.h"
#include "sandbox/exec_result.h"

namespace carrel::cli {

// Writes to stdout or stderr; an output that cannot be written ends the program quietly, as a
// closed pipe should.
void print(std::string_view text);
void print_error(std::string_view text);

// "carrel: message" on stderr, or one JSON object on stdout with --json. Returns the exit status
// that belongs to the error for this command.
int fail(const Context& context, const Error& error);

// The same words everywhere: command line, API, SDKs, MCP.
std::string_view code_name(Code code);

// A result as one JSON object.
std::string to_json(const sandbox::ExecResult& result);

// For text that comes from a sandbox and is shown on a terminal: controls, and
// characters that change its direction, are escaped.
std::string printable(std::string_view text);

std::string base64(std::string_view data);

// A JSON string literal; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace carrel::cli
