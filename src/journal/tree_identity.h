#pragma once

#include <string>

#include "storage/workspaces/changes.h"

namespace carrel::journal {

// Where tools put the output of commands that is too long for an answer, in the workspace. It says
// how often something ran and not what the files are.
inline constexpr char kOutputFolder[] = ".exec";

// SHA-256 over paths, kinds, modes, contents, targets and attributes of everything but what is in
// kOutputFolder. Times do not count, nor which names belong to one file.
std::string identity_of(const storage::Tree& tree);

}  // namespace carrel::journal
