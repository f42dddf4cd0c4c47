#pragma once

#include <string>

#include "base/result.h"

namespace carrel::bench {

// Runs a command in a running container through the daemon's HTTP API, as a program that embeds
// Docker does it: make the exec, start it and read its output to the end, ask for its status.
// An error if that is not 0. Three requests, a connection each.
Status docker_exec(const std::string& socket_path, const std::string& container,
                   const std::string& program);

}  // namespace carrel::bench
