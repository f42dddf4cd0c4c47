#pragma once

#include <string_view>

#include "guest/failure.h"
#include "guest/gvisor.h"
#include "protocol/boot.h"

namespace carrel::guest {

// Whether everything that is mounted in a room that another program built belongs to a step of the
// plan, and what lies below a read-only mount is read-only itself: engines add files of their own,
// and not every one protects what is mounted further down. gVisor adds a sysfs of its own kernel.
bool check_mounts(const protocol::Plan& plan, Kernel kernel, Failure& failure);

// What the table says of exactly that absolute path: of the last mount there.
enum class MountedAs { kNothing, kReadOnly, kWritable };
MountedAs mounted_at(std::string_view path);

}  // namespace carrel::guest
