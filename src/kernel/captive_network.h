#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "kernel/captive_ports.h"

// A network namespace from which nothing leaves: it has a loopback interface only, every address is
// local to it, and what a program sends to the world arrives at sockets that were born in it and
// are held by somebody outside. What is here is data for netlink; whoever is in the namespace sends
// it, or a process that goes there for that.
namespace carrel::kernel {

// Addresses of the namespace's own, without which libraries would believe that there is no network.
inline constexpr std::string_view kCaptiveAddress = "10.255.0.2";
inline constexpr std::string_view kCaptiveAddress6 = "fd63:6172:7265::2";
// Where its resolver is said to be. Lookups that are sent anywhere else arrive at the same place.
inline constexpr std::string_view kCaptiveResolver = "198.18.0.1";

struct CaptiveNetwork {
  std::string routes;   // NETLINK_ROUTE
  std::string routes6;  // the same for IPv6, which a kernel may lack
  std::string rules;    // NETLINK_NETFILTER
};

// The addresses and routes, and the rules: what is meant for the namespace itself arrives there;
// other TCP and all lookups are redirected; the rest is refused, so that nobody waits for it.
CaptiveNetwork captive_network();

// A process by its number, and by a descriptor that says whether that is still its own.
struct ProcessName {
  pid_t number = 0;
  int descriptor = -1;
};

// Makes the network of another process a captive one, whose namespaces belong to this user or who
// is root. It has a loopback interface that is up.
Status make_captive(const ProcessName& process, const CaptiveNetwork& network);

}  // namespace carrel::kernel
