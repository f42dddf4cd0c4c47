#include "dns/dial_order.h"

#include <algorithm>
#include <cerrno>

#include "base/unique_fd.h"

namespace carrel::dns {
namespace {

constexpr std::uint16_t kProbePort = 9;  // a datagram socket is connected, and sends nothing

// One of each family in turn, as long as there are both.
std::vector<Address> alternate(const std::vector<Address>& addresses) {
  std::vector<Address> four;
  std::vector<Address> six;
  for (const Address& address : addresses) {
    (address.ip.is_v4() ? four : six).push_back(address);
  }
  std::vector<Address> mixed;
  for (std::size_t i = 0; i < std::max(four.size(), six.size()); ++i) {
    for (const auto* family : {&four, &six}) {
      if (i < family->size()) {
        mixed.push_back((*family)[i]);
      }
    }
  }
  return mixed;
}

}  // namespace

bool has_route_to(const Address& address) {
  const SocketAddress target = SocketAddress::of(address, kProbePort);
  const UniqueFd probe(::socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe.valid() && ::connect(probe.get(), target.get(), target.size) == 0;
}

std::vector<Address> order_for_dialling(const std::vector<Address>& addresses) {
  std::vector<Address> with_route;
  std::vector<Address> others;
  for (const Address& address : addresses) {
    (has_route_to(address) ? with_route : others).push_back(address);
  }
  std::vector<Address> ordered = alternate(with_route);
  for (const Address& address : alternate(others)) {
    ordered.push_back(address);
  }
  return ordered;
}

}  // namespace carrel::dns
