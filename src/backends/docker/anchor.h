#pragma once

#include <sys/types.h>

#include <string>

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
  pid_t above = 0;  // a child of this process, which ends last
  pid_t pid = 0;    // as the host counts
  UniqueFd process;
  UniqueFd door;  // the guest's end; not valid without a listener
};

Result<Anchor> start_anchor(const sandbox::RoomRequest& request, const std::string& engine,
                            const std::string& container, pid_t first_process);

// All of it, as the whole life of a process; its exit status.
int run_anchor();

}  // namespace carrel::docker
