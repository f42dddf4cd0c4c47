#pragma once

#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace carrel {

// The address of the socket `name` in a directory, by its descriptor: a path may be longer than an
// address. The directory has to stay open until the address was used.
sockaddr_un socket_address(int directory, std::string_view name);

// The most descriptors of one message.
inline constexpr std::size_t kMostDescriptors = 32;

// send() and recv() with descriptors beside the bytes. Those that arrive are added to the list, and
// close with exec.
ssize_t send_with(int socket, std::string_view data, std::span<const int> descriptors, int flags);
ssize_t receive_with(int socket, std::span<char> data, std::vector<UniqueFd>& descriptors,
                     int flags);

}  // namespace carrel
