#pragma once

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::oci {

// The first process of the PID namespace that gVisor's processes are in: with it all of them end,
// and it ends with gVisor's kernel. For a guest that cannot listen it takes connections at the
// box's socket and hands each in at the door, as a descriptor beside one byte. It reads nothing
// that comes from inside, and what went through does not need it any more.
class Porter {
 public:
  // A porter without a door only waits.
  Porter() = default;
  // `listener` is bound. Whoever connects to it finds this process there.
  static Result<Porter> at(UniqueFd listener, UniqueFd door);

  // `kernel` is a child of this process. A second process does the work, and is replaced when
  // somebody ends it.
  [[noreturn]] void serve(pid_t kernel);

 private:
  void hand_in();
  [[noreturn]] void work();
  pid_t start_work();

  UniqueFd listener_;
  UniqueFd door_;
};

}  // namespace carrel::oci
