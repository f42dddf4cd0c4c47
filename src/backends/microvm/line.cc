#include "backends/microvm/line.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <string>

#include "backends/microvm/hall.h"
#include "guest/machine.h"

namespace carrel::microvm {

Result<UniqueFd> listen_for_machine() {
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = std::string(kLinePlace) + "_" + std::to_string(guest::kMachinePort);
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (!listener.valid() ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    return system_error("listen for the machine at " + path);
  }
  return listener;
}

std::optional<PorterEnd> await_line(PorterTerms& terms, UniqueFd listener) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point late = Clock::now() + terms.boot;
  while (!terms.line.valid()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(late - Clock::now());
    if (left.count() <= 0) {
      return PorterEnd::kTooSlow;
    }
    std::array<pollfd, 4> watched = {{{listener.get(), POLLIN, 0},
                                      {terms.vmm.get(), POLLIN, 0},
                                      {terms.librarian.get(), POLLIN, 0},
                                      {terms.clerk.get(), POLLIN, 0}}};
    (void)::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
    if (watched[0].revents != 0) {
      terms.line.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    } else if (watched[1].revents != 0 || watched[2].revents != 0 || watched[3].revents != 0) {
      return PorterEnd::kNeverBegan;
    }
  }
  terms.boot = std::chrono::ceil<std::chrono::milliseconds>(late - Clock::now());
  return std::nullopt;
}

}  // namespace carrel::microvm
