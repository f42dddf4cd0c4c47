#pragma once

// The first process of a container that an engine made: it has no capability and is none of the
// workload's. It calls its maker, makes the namespaces of a sandbox in the container, and starts
// the guest that it is given in them, which builds its room as it does everywhere. It ends with
// that guest, and the container with it.
namespace carrel::guest {

// Where the container has the socket on which its maker listens.
inline constexpr char kDoor[] = "/carrel/door";

int run_contained();

}  // namespace carrel::guest
