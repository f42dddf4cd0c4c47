#pragma once

#include <cstdint>

#include "guest/failure.h"
#include "protocol/boot.h"

// A room behind gVisor: its kernel is a program of the host's, and some things are otherwise there.
namespace carrel::guest {

enum class Kernel : std::uint8_t { kHosts, kGvisors };

inline Kernel kernel_of(const protocol::Boot& boot) {
  return (boot.flags & protocol::kBootGvisor) != 0 ? Kernel::kGvisors : Kernel::kHosts;
}

// That the kernel says of itself that it is gVisor's, where that was asked for.
bool check_kernel(Kernel kernel, Failure& failure);

// gVisor's /dev cannot be read-only: nothing there could be written to. It is given to nobody, with
// the folders in it that are not mounts, so that the workload can make and remove nothing.
bool give_up_devices(Failure& failure);
// Whether that is so of a folder.
bool is_given_up(const char* folder);

// The next connection that came through a door, or a negative errno: -EAGAIN where there is none,
// and -EPIPE where there will be no more.
int take_from_door(int door);

// The memory that gVisor's kernel has given out, in bytes.
std::uint64_t gvisors_memory();

}  // namespace carrel::guest
