#pragma once

namespace carrel::guest {

// Moves this process into a network of its own, a namespace with nothing but a loopback interface.
// Needs CAP_SYS_ADMIN and CAP_NET_ADMIN in its user namespace. False with errno.
bool make_network();
// The loopback interface of the network that this process is in. False with errno.
bool bring_up_loopback();

}  // namespace carrel::guest
