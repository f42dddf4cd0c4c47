#pragma once

#include "guest/failure.h"
#include "guest/helper.h"
#include "guest/maker.h"
#include "guest/state.h"

namespace carrel::guest {

// How far a guest has come when it is told whose sandbox it is: see docs/decisions/0027.
enum class Waited {
  kFailed,
  kBuilt,   // its root, and it stands in it; the host's tree is still there
  kLocked,  // everything; only the workload is missing
};

// The life of a guest that waits for its sandbox, from the plan that it is told ahead. `frame` gets
// what it is told at last, and has to stay. Ends this process when nobody wants it.
Waited wait_for_sandbox(Guest& guest, Helper& helper, const Received& ahead, Received& frame,
                        Failure& failure);

}  // namespace carrel::guest
