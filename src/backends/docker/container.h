#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "backends/docker/engine.h"
#include "base/result.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// Where the container has the guest's program.
inline constexpr char kProgram[] = "/carrel/guest";
inline constexpr char kInstallationLabel[] = "carrel.installation";
inline constexpr char kSandboxLabel[] = "carrel.sandbox";

// How a container counts users: as the host does, or with its engine's owner as root. That root has
// one capability, without which the kernel lets it map itself to nobody else.
enum class Ids { kHosts, kOwnersRoot };

// What leads to a container's first process: a socket of the host's, or its standard input and
// output. The latter end with whoever is attached to them.
enum class WayIn { kDoor, kLine };

// What is not in the request itself.
struct ContainerTerms {
  std::string image;
  std::string runtime;
  std::string program;  // files of the host
  std::string door;
  WayIn way = WayIn::kDoor;
  std::uint32_t user = 0;  // as the container counts
  std::uint32_t group = 0;
  std::vector<std::string> security;  // of the engine: "name=apparmor" and the like
  unsigned cpus = 0;                  // of the host; zero: nobody told
  EngineKind kind = EngineKind::kDocker;
  Ids ids = Ids::kHosts;
  LimitsHeld limits;  // what the engine can be asked for
  // podman would ask for more than it may have.
  std::uint64_t open_files = 0;
  std::uint64_t processes = 0;
};

struct Layout;

using Exists = bool (*)(const std::string& path);

// What an engine is asked to create: a container without a capability, a network or a way to gain
// privileges, with a root that cannot be written to. Of the host it sees what the plan's steps
// name, at the same paths, so that the guest in it finds what it builds its room of. kUnsupported:
// a path that a container cannot have.
Result<nlohmann::json> container_for(const sandbox::RoomRequest& request,
                                     const ContainerTerms& terms, Exists exists);

// The same of a room that the engine furnishes, for a kernel of its own: `place` is where the files
// of the layout are. It has the capabilities that its guest gives up /dev and locks itself in with,
// where its user is root there.
Result<nlohmann::json> furnished_container(const sandbox::RoomRequest& request,
                                           const ContainerTerms& terms, const Layout& layout,
                                           const std::string& place);

}  // namespace carrel::docker
