#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/docker/standing.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// The process that stands on the host for a sandbox in a container that only the engine's
// connection to its standard input and output leads to. It carries connections over that line
// (sandbox/porter.h), in namespaces of its own with an empty root, as the sandbox's id where the
// caller is root, without a capability and under a filter of system calls. It ends with the line,
// and the line with it: then the container's first process sees the end of its input, and the
// process above this one has the engine remove what is left.
Result<Standing> start_ferry(const sandbox::RoomRequest& request, const std::string& engine,
                             const std::string& container, int line);

// All of it, as the whole life of a process. Its lines: the role, the engine, the container, the id
// that it takes, and whether there is a listener and a network.
inline constexpr std::size_t kFerryLines = 6;
Status be_ferry(const std::vector<std::string>& lines);

}  // namespace carrel::docker
