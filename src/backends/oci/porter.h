#pragma once

#include <sys/types.h>

#include <optional>

#include "backends/oci/network_desk.h"
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

  // It also gives the egress process what that asks for at this socket, which is bound.
  Status attend_network(UniqueFd listener);

  // `kernel` is a child of this process. Another process does each of the works, and is replaced
  // when somebody ends it.
  [[noreturn]] void serve(pid_t kernel);

 private:
  void hand_in();
  [[noreturn]] void work();
  pid_t start_work();
  pid_t start_desk();

  UniqueFd listener_;
  UniqueFd door_;
  std::optional<NetworkDesk> desk_;
};

}  // namespace carrel::oci
