#pragma once

#include <sys/types.h>

#include <cstddef>

namespace carrel::kernel {

// What a child that shares its parent's memory needs of it, until it is gone.
struct WaitingChild {
  pid_t parent = 0;
  alignas(64) std::byte stack[8192];
};

// A child in a user namespace of its own that waits for nothing but its end; it ends with its
// parent, too. Returns its id or a negative errno. The caller blocks all signals around this: a
// handler would run in the child.
pid_t clone_waiting_child(WaitingChild& memory);

}  // namespace carrel::kernel
