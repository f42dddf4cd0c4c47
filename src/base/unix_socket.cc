#include "base/unix_socket.h"

#include <sys/socket.h>

#include <string>

namespace carrel {

sockaddr_un socket_address(int directory, std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = "/proc/self/fd/" + std::to_string(directory) + "/";
  path += name;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

}  // namespace carrel
