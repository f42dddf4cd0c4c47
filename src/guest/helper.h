#pragma once

#include <sys/types.h>

#include <cstdint>

#include "guest/failure.h"

namespace carrel::guest {

// A second process that does what takes the kernel long while the guest goes on. First it makes the
// sandbox's own network, a namespace with nothing but a loopback interface; then, when the guest
// has moved into its new root, it detaches the host's tree. It has the guest's memory and
// descriptors. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN in the guest's own user namespace.
class Helper {
 public:
  bool begin(Failure& failure);
  // The guest stands in its new root; the host's tree is on top of it.
  void detach_host();
  // Waits for the network and moves in. CRITICAL: before this the guest is in its maker's network.
  bool enter_network(Failure& failure);
  // Waits for its end. CRITICAL: before this the host's tree is within reach.
  bool end(Failure& failure);

 private:
  static int run(void* helper);
  void open_network();

  pid_t pid_ = 0;
  std::uint32_t network_made_ = 0;  // words that one process waits for the other to say
  std::uint32_t may_detach_ = 0;
  int network_ = -1;
  int network_error_ = 0;
  int detach_error_ = 0;
};

}  // namespace carrel::guest
