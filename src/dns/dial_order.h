#pragma once

#include <vector>

#include "dns/socket_address.h"

namespace carrel::dns {

// Whether this host has a route to the address. Sends nothing.
bool has_route_to(const Address& address);

// The order in which addresses of one host are dialled one after the other: those with a route
// first, the families in turn and IPv4 first, each in the order that the server gave.
std::vector<Address> order_for_dialling(const std::vector<Address>& addresses);

}  // namespace carrel::dns
