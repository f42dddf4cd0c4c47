#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "protocol/files.h"

namespace carrel::sandbox {

// What a file worker says went wrong, as an error about `path`; what it says is hostile.
Error file_error(const protocol::FileOutcome& outcome, std::string_view path);

// The same in a few words, for a list of what was left out.
std::string file_reason(const protocol::FileOutcome& outcome);

}  // namespace carrel::sandbox
