#pragma once

#include "guest/failure.h"

// The first process of a container that an engine made: it has no capability and is none of the
// workload's. It calls its maker, makes the namespaces of a sandbox in the container, and starts
// the guest that it is given in them, which builds its room as it does everywhere. It ends with
// that guest, and the container with it.
namespace carrel::guest {

// The one id that the sandbox's outer user namespace maps, as in a room without a container.
inline constexpr unsigned kInnerId = 1000;

// Where the container has the socket on which its maker listens.
inline constexpr char kDoor[] = "/carrel/door";

// Whose id the container's user is: one of the host's, or the engine's owner, who is root in the
// container and on the host what he always is.
enum class ContainedAs { kHostsUser, kOwner };
inline constexpr char kContained[] = "contained";
inline constexpr char kContainedByOwner[] = "contained-by-owner";

int run_contained(ContainedAs user);

// The word that tells a guest that an engine furnished its room behind gVisor.
inline constexpr char kContainedByGvisor[] = "gvisor-contained";
// Calls the maker; what was said becomes the stream of it. Without it there is nobody to tell, and
// the process ends.
void call_from_container();

// What the guest builds its room with, in its own user namespace; it gives them up afterwards.
bool keep_capabilities();

// Becomes the guest, in the namespaces of its sandbox: takes the one id that its user namespace
// maps, and executes the program, which is descriptor 4. Its stream is descriptor 3.
[[noreturn]] void execute_guest(const char* name, Failure& failure);

}  // namespace carrel::guest
