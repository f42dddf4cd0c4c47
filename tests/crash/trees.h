#pragma once

#include <string>

#include "support/process.h"

namespace carrel::test {

// Everything that is below a directory, one line for each name: kind, mode, time, contents or where
// a link leads. Read from outside, so that two moments of a workspace can be compared.
std::string tree_state(const std::string& directory);

// The tree of a workspace that is no fork, as the host has it.
std::string tree_of(As as, const std::string& workspace);

// What is wrong with the workspaces of that user, one line each: what `carrel workspace fsck`
// finds, and what lies in workspaces/ and layers/ and belongs to nothing. The command sweeps first.
std::string wrong_with_workspaces(As as);
// Empty as soon as nothing is wrong; after five seconds the list.
std::string lasting_wrong_with_workspaces(As as);

}  // namespace carrel::test
