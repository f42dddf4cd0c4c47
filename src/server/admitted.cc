#include "server/admitted.h"

#include <sys/socket.h>

namespace carrel::server {

Admitted::Stay::Stay(Admitted& all, const Access::Identity& identity, int socket)
    : all_(all), identity_(identity), socket_(socket) {
  const std::lock_guard lock(all_.mutex_);
  place_ = all_.stays_.insert(all_.stays_.end(), this);
}

Admitted::Stay::~Stay() {
  const std::lock_guard lock(all_.mutex_);
  all_.stays_.erase(place_);
}

std::size_t Admitted::cut_off(const Access& access) {
  std::size_t count = 0;
  const std::lock_guard lock(mutex_);
  for (const Stay* stay : stays_) {
    if (!access.still_admits(stay->identity_)) {
      // To whoever serves it, the client has left.
      (void)::shutdown(stay->socket_, SHUT_RDWR);
      ++count;
    }
  }
  return count;
}

}  // namespace carrel::server
