#pragma once

#include <cstdint>

#include "guest/failure.h"

// The first process of a machine of its own: root there, and nobody of the sandbox's. It loads the
// kernel's modules, mounts the root that the host shows as a block device, starts the guest in
// namespaces as on a host, and carries the connections to it over the machine's serial line. The
// machine ends with the guest.
namespace carrel::guest {

// The kernel's command line ends with it: what comes after "--" is the first process's.
inline constexpr char kMachineWord[] = "machine";

// What the host puts into the first file system, beside this program as "init".
inline constexpr char kMachineTerms[] = "/terms";      // lines: see machine.cc
inline constexpr char kMachineModules[] = "/modules";  // a line for each, in their order
// In the root: the trees that come with a plan, by their numbers.
inline constexpr char kMachineTrees[] = "/.carrel/trees/";

int run_machine();

// Whether this guest is the one of a machine, which its first process tells by this name.
inline constexpr char kMachineGuest[] = "carrel-machine-guest";
inline bool in_machine = false;

// How often the machine's kernel has ended a process because there was no memory any more.
std::uint64_t count_kills(int vmstat);

// Loads each module that is named. A module that the kernel has already is fine.
bool load_modules(Failure& failure);

}  // namespace carrel::guest
