#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/address_class.h"
#include "sandbox/port.h"

namespace carrel::egress {

// A socket of the host that listens there; port 0 is any that is free.
Result<UniqueFd> listen_at(const policy::IpAddress& address, std::uint16_t port);
// The port that it got.
std::uint16_t port_of(int listener);

struct PublishEvents {
  std::function<void(const Error& why)> refused;  // a client was turned away
  std::function<void()> connected;
};

// Joins whoever connects to the listener with the port inside, many at once, until the sandbox
// ends; the error says how. A client of a port where nobody listens sees a reset.
Error publish(sandbox::Port port, UniqueFd listener, PublishEvents events);

}  // namespace carrel::egress
