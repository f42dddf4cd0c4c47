#include "server/notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "base/unique_fd.h"

namespace carrel::server {

void notify(std::string_view state) {
  const char* place = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t size = place == nullptr ? 0 : std::strlen(place);
  if (size == 0 || size >= sizeof address.sun_path) {
    return;
  }
  std::memcpy(address.sun_path, place, size);
  if (address.sun_path[0] == '@') {
    address.sun_path[0] = '\0';
  }
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  (void)::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&address), length);
}

void notify_watchdog() {
  static const std::chrono::microseconds kEvery = [] {
    const char* text = std::getenv("WATCHDOG_USEC");
    return std::chrono::microseconds(text == nullptr ? 0 : std::strtoll(text, nullptr, 10) / 3);
  }();
  static std::chrono::steady_clock::time_point last;
  if (kEvery.count() > 0 && std::chrono::steady_clock::now() - last >= kEvery) {
    last = std::chrono::steady_clock::now();
    notify("WATCHDOG=1");
  }
}

}  // namespace carrel::server
