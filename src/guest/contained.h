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

// The same where only its standard input and output lead to it, because the container is said to be
// in a machine of its own. What the host cannot compare there it compares itself.
inline constexpr char kContainedAway[] = "contained-away";
int run_contained_away();
// The lines of its terms, beside those of a machine (guest/machine.h): where it finds each tree of
// the plan, in their order; a namespace of the host's, which it may not have, as /proc/self/ns
// tells it; and that the kernel is not the host's.
inline constexpr char kTermTree[] = "tree ";
inline constexpr char kTermApart[] = "apart ";
inline constexpr char kTermMachine[] = "machine";

// CRITICAL: what an engine was told it may have left out.
bool check_container(ContainedAs user, Failure& failure);
// In a new user namespace: maps the one id that the sandbox has to the container's.
bool map_container(unsigned uid, unsigned gid, Failure& failure);

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
