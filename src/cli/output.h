#pragma once

#include <string>
#include <string_view>

#include "base/base64.h"
#include "base/code_name.h"
#include "base/result.h"
#include "cli/context.h"
#include "sandbox/result_json.h"

namespace carrel::cli {

// Writes to stdout or stderr; an output that cannot be written ends the program quietly, as a
// closed pipe should.
void print(std::string_view text);
void print_error(std::string_view text);

// "carrel: message" on stderr, or one JSON object on stdout with --json. Returns the exit status
// that belongs to the error for this command.
int fail(const Context& context, const Error& error);

using sandbox::to_json;

// For text that comes from a sandbox and is shown on a terminal: controls, and
// characters that change its direction, are escaped.
std::string printable(std::string_view text);

// A JSON string literal; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

}  // namespace carrel::cli
