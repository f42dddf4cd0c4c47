#pragma once

#include <optional>
#include <string>

namespace carrel::native {

// What a process that this one forks would have from it, and a process that somebody else forks has
// from him: control groups, resource limits, priority, processors, groups, namespaces, the root.
// Two processes in the same circumstances give the same text. Nothing for one whose circumstances
// cannot be compared: it is under a system call filter.
std::optional<std::string> circumstances();

}  // namespace carrel::native
