#include "guest/captive_stock.h"

#include <fcntl.h>
#include <unistd.h>

#include "guest/network.h"

namespace carrel::guest {

void CaptiveStock::prepare(const protocol::Captive& captive) {
  Failure ignored;
  if (network_ >= 0 || captive.empty() || !make_network() || !make_captive(captive, ignored) ||
      sockets_.make() != 0) {
    return;
  }
  network_ = openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  captive_ = captive;
  if (network_ < 0) {
    sockets_.close_all();
  }
}

int CaptiveStock::take(const protocol::Captive& captive, CaptiveSockets& sockets) {
  if (network_ < 0 || captive != captive_) {
    return -1;
  }
  int network = network_;
  network_ = -1;
  sockets = sockets_;
  sockets_ = {};
  return network;
}

void CaptiveStock::forget() {
  if (network_ >= 0) {
    close(network_);
    network_ = -1;
    sockets_.close_all();
  }
}

}  // namespace carrel::guest
