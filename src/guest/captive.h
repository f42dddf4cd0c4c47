#pragma once

#include <cstddef>
#include <cstdint>

#include "guest/failure.h"
#include "protocol/boot.h"
#include "protocol/message.h"

namespace carrel::guest {

// Makes the network that this process is in a captive one, if that is asked for. Needs
// CAP_NET_ADMIN over it. Until somebody outside holds its sockets, nothing answers in it.
bool make_captive(const protocol::Captive& captive, Failure& failure);

// Whether the network that this process sees is such a one, where somebody else made it.
bool is_captive();

// The sockets of a captive network, for whoever is to serve it.
struct CaptiveSockets {
  int descriptors[protocol::kNetworkSockets];
  std::size_t count = 0;
  std::uint32_t present = 0;  // which they are

  // Of the network that this process is in. 0 or a negative errno.
  int make();
  void close_all();
};

}  // namespace carrel::guest
