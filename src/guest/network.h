#pragma once

#include <sys/types.h>

#include "guest/failure.h"

namespace carrel::guest {

// The sandbox's own network: a namespace with nothing but a loopback interface. To make one takes
// the kernel longer than all other namespaces together, so a helper does it while the guest builds
// its root. Needs all capabilities in the guest's own user namespace.
class Network {
 public:
  // Starts making it.
  bool begin(Failure& failure);
  // Waits for it and moves in. Where begin() was not called, the guest was born in its network and
  // only brings up the loopback interface. CRITICAL: before this it is in its maker's network.
  bool join(Failure& failure);

 private:
  static int run_helper(void* network);

  pid_t helper_ = 0;
  int descriptor_ = -1;  // of the new namespace; the helper sets it
  int error_number_ = 0;
};

}  // namespace carrel::guest
