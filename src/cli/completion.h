#pragma once

#include <string>

namespace carrel::cli {

// Completion scripts made from the tables of options.h: commands, options, the words an option
// takes and files where a file is wanted. They run nothing, so ids of sandboxes are not completed.

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace carrel::cli
