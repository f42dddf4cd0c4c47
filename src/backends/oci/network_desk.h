#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::oci {

// Where the egress process gets the sockets of a captive network that gVisor's kernel is in: that
// hands out none, and this process is in the same network. It is asked as a guest would be, over a
// connection that stays open as long as the network is there.
class NetworkDesk {
 public:
  // `listener` is bound. Whoever connects to it finds the caller of this there.
  static Result<NetworkDesk> at(UniqueFd listener);

  [[nodiscard]] int listener() const { return listener_.get(); }
  [[noreturn]] void work();

 private:
  explicit NetworkDesk(UniqueFd listener) : listener_(std::move(listener)) {}

  UniqueFd listener_;
};

// Answers one request: the sockets of the network that this process is in, or why there are none.
// False: that was no request, or nobody takes the answer.
bool answer_for_network(int connection);

}  // namespace carrel::oci
