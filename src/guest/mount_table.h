#pragma once

#include "guest/failure.h"
#include "protocol/boot.h"

namespace carrel::guest {

// Whether everything that is mounted in a room that another program built belongs to a step of the
// plan, and what lies below a read-only mount is read-only itself: engines add files of their own,
// and not every one protects what is mounted further down.
bool check_mounts(const protocol::Plan& plan, Failure& failure);

}  // namespace carrel::guest
