#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dns/socket_address.h"
#include "policy/host.h"

namespace carrel::dns {

inline constexpr std::uint16_t kPort = 53;
inline constexpr const char* kConfigurationFile = "/etc/resolv.conf";

// Who is asked, and how: what resolv.conf(5) says.
struct Configuration {
  struct Server {
    Address address;
    std::uint16_t port = kPort;

    // The address, and the port where it is not 53.
    [[nodiscard]] std::string text() const;
    bool operator==(const Server&) const = default;
  };

  std::vector<Server> servers;       // never none, at most three
  std::vector<policy::Host> search;  // domains, at most 16
  unsigned ndots = 1;
  std::chrono::milliseconds timeout{5'000};  // how long a server is listened to, each time
  unsigned attempts = 2;                     // how often each server is asked
  bool rotate = false;                       // begin with any of them
  bool use_tcp = false;                      // "use-vc"
  bool no_aaaa = false;                      // IPv4 alone
};

// What is not understood is passed over, and numbers are taken as far as resolv.conf(5) lets them
// go. Without a server: 127.0.0.1.
Configuration parse_configuration(std::string_view text);
// That of this host, as its file is now.
Configuration read_configuration();

}  // namespace carrel::dns
