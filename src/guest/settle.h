#pragma once

#include "guest/failure.h"
#include "guest/helper.h"
#include "guest/maker.h"
#include "guest/nursery.h"
#include "guest/state.h"

// What a guest does with its boot message, in the order of docs/decisions/0003.
namespace carrel::guest {

// The message, which refers to the frame from then on.
bool read_boot(Guest& guest, const Received& frame, Failure& failure);

// Takes what came with it: the listener, and the files of the control groups. The guest joins its
// own groups here.
bool take_descriptors(Guest& guest, const Received& frame, Failure& failure);

struct Settling {
  Helper* helper = nullptr;  // none: a nursery has done its part
  NetworkReady network = NetworkReady::kEmpty;
  int* clocks = nullptr;  // of a guest that waits, with a spawner: see spawner_ahead.h
};
// From the root that it has moved into to the lock. Nothing of it can be undone.
bool settle_in(Guest& guest, const Received& frame, const Settling& how, Failure& failure);

}  // namespace carrel::guest
