#pragma once

#include <string>
#include <string_view>

namespace carrel::tools {

// What a command seems to do that is hardly ever meant: remove or change everything below the root,
// make a file system, write to a disk itself, a fork bomb. A sentence for the log and the model, or
// nothing. It is advice: the sandbox is the protection, and a command that hides what it does is
// not found out here.
std::string advice_about(std::string_view command);

}  // namespace carrel::tools
