#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>

#include "base/unique_fd.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

// Which network a socket is in, as a number that no other network of this machine has or had.
// Before Linux 5.14 the kernel does not tell.
namespace carrel::kernel {

template <typename T>
std::optional<T> socket_option(int fd, int name) {
  T value{};
  socklen_t size = sizeof value;
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? std::optional(value)
                                                                : std::nullopt;
}

inline std::optional<std::uint64_t> network_of(int socket) {
  return socket_option<std::uint64_t>(socket, SO_NETNS_COOKIE);
}

// Of this process.
inline std::optional<std::uint64_t> own_network() {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return network_of(fd.get());
}

}  // namespace carrel::kernel
