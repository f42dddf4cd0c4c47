#pragma once

#include <string_view>
#include <vector>

#include "dns/socket_address.h"
#include "policy/host.h"

namespace carrel::dns {

inline constexpr const char* kHostsFile = "/etc/hosts";
inline constexpr std::size_t kLargestHostsFile = 16U << 20;

// The addresses that a text in the form of hosts(5) has for the name, in its order.
std::vector<Address> find_in_hosts(std::string_view text, const policy::Host& name);

}  // namespace carrel::dns
