// A hostile machine: any bytes on the serial line. The host's end of the trunk never crashes, hands
// on no more than was sent, and what is no frame breaks it for good.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "protocol/trunk.h"

namespace {

using carrel::protocol::Trunk;
using carrel::protocol::TrunkEnd;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

struct Pair {
  std::array<int, 2> ends{-1, -1};
  Pair() {
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  }
};

std::size_t drain(int fd) {
  std::array<char, 4096> piece{};
  std::size_t all = 0;
  for (ssize_t n = 0; (n = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT)) > 0;) {
    all += static_cast<std::size_t>(n);
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 64U << 10;
  if (size > kMost) {
    return 0;
  }
  const Pair line;
  const Pair first;
  const Pair client;
  auto trunk = std::make_unique<Trunk>();
  trunk->begin(TrunkEnd::kHost, line.ends[0], first.ends[0], {});
  require(trunk->carry(client.ends[0]));
  std::size_t got = 0;
  bool open = true;
  unsigned ready = 0;
  for (std::size_t at = 0; at < size && open;) {
    const ssize_t n = ::send(line.ends[1], data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    at += n > 0 ? static_cast<std::size_t>(n) : 0;
    open = trunk->serve(nullptr, 0, ready, 0);
    got += drain(first.ends[1]) + drain(client.ends[1]);
    (void)drain(line.ends[1]);
  }
  require(got <= size);
  require(open || trunk->broken());
  for (const int fd : {line.ends[0], line.ends[1], first.ends[1], client.ends[1]}) {
    ::close(fd);
  }
  // The trunk owns the others until their channels are closed.
  ::close(first.ends[0]);
  ::close(client.ends[0]);
  return 0;
}
