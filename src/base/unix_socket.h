#pragma once

#include <sys/un.h>

#include <string_view>

namespace carrel {

// The address of the socket `name` in a directory, by its descriptor: a path may be longer than an
// address. The directory has to stay open until the address was used.
sockaddr_un socket_address(int directory, std::string_view name);

}  // namespace carrel
