#pragma once

#include <sys/types.h>

namespace carrel::native {

// Whether a process, or one below it, has a file of that device open for writing, or shares one by
// a mapping: such a one can change it with no call that anybody is told of. The device is named as
// lists of mounts and mappings name it. What cannot be looked at, or is too much to look at, may be
// one. They all have to stand still.
bool may_write_unseen(pid_t first, dev_t device);

}  // namespace carrel::native
