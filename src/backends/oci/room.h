#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/oci/bundle.h"
#include "base/result.h"
#include "sandbox/walls.h"

// What rooms of all runtimes have in common.
namespace carrel::oci {

struct Runtime {
  std::string name;
  std::string path;
};

// Where the runtime of that name is. Not by the caller's PATH: whoever can change that could put
// another program in its place.
std::optional<Runtime> runtime_named(const std::string& name);

Error not_installed(const std::string& name);

// gVisor's: how it takes system calls, and whose network it has.
struct GvisorWays {
  std::string platform;
  std::string network;
};

using CommandOf = std::vector<std::string> (*)(const Runtime& runtime, const Places& places,
                                               const GvisorWays& ways);

// Who builds a room, and in which words.
struct Builder {
  Runtime runtime;
  Dialect dialect = Dialect::kHosts;
  CommandOf command = nullptr;
  GvisorWays ways;
  std::vector<std::string> covered;  // directories of the host that it had better not see
};

// Has a porch lay out the room and the runtime start a guest in it.
Result<sandbox::RoomStarted> start_room(const sandbox::RoomRequest& request,
                                        const Builder& builder);

}  // namespace carrel::oci
