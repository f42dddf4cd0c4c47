#pragma once

#include <sys/types.h>

namespace carrel::kernel {

// A child in a user namespace of its own, in its parent's memory, that waits for nothing but its
// end; it ends with its parent, too. Returns its id or a negative errno. The caller blocks all
// signals around this: a handler would run in the child. `stack_end` is the end of at least 4 KiB.
pid_t clone_waiting_child(void* stack_end);

}  // namespace carrel::kernel
