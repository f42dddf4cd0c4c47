#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "backends/docker/standing.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "sandbox/walls.h"

namespace carrel::docker {

// The process that stands on the host for a room in a container whose processes are not the
// caller's. It is apart from the host and sees nothing of it, listens at the box's socket, and
// hands each connection in at the door, as a descriptor beside one byte; it reads nothing that
// comes from inside. It ends with the container, and the container with it: the guest sees its door
// closed, and the process above this one has the engine remove what is left.
struct Anchor {
  Standing standing;
  UniqueFd door;  // the guest's end; not valid without a listener
};

Result<Anchor> start_anchor(const sandbox::RoomRequest& request, const std::string& engine,
                            const std::string& container, pid_t first_process);

// All of it, as the whole life of a process. Its lines: the role, the engine and the container.
inline constexpr std::size_t kAnchorLines = 3;
Status be_anchor(const std::vector<std::string>& lines);

}  // namespace carrel::docker
