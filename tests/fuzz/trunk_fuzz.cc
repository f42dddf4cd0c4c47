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
#include <utility>

#include "protocol/trunk.h"

namespace {

using carrel::protocol::Trunk;
using carrel::protocol::TrunkEnd;
using carrel::protocol::TrunkLabel;
using carrel::protocol::TrunkPurpose;

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

// What a machine may reach: eight things, each once.
struct Reachable {
  std::array<Pair, 8> pairs;
  std::array<bool, 8> given{};
  static int reach(void* self, const TrunkLabel& label) {
    auto* const all = static_cast<Reachable*>(self);
    require(label.detail.size() < carrel::protocol::kTrunkLabel);
    if (label.purpose != TrunkPurpose::kFiles) {
      return -1;
    }
    require(label.detail.size() == 1);
    const auto number = static_cast<unsigned char>(label.detail[0]);
    const bool there = number < all->pairs.size() && !std::exchange(all->given[number], true);
    return there ? all->pairs[number].ends[0] : -1;
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
  auto trunk = std::make_unique_for_overwrite<Trunk>();
  Reachable reachable;
  Trunk::Owner owner;
  owner.reach = Reachable::reach;
  owner.self = &reachable;
  trunk->begin(TrunkEnd::kHost, line.ends[0], first.ends[0], owner);
  require(trunk->carry(client.ends[0]));
  std::size_t got = 0;
  bool open = true;
  unsigned ready = 0;
  for (std::size_t at = 0; at < size && open;) {
    const ssize_t n = ::send(line.ends[1], data + at, size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
    at += n > 0 ? static_cast<std::size_t>(n) : 0;
    open = trunk->serve(nullptr, 0, ready, 0);
    got += drain(first.ends[1]) + drain(client.ends[1]);
    for (const Pair& pair : reachable.pairs) {
      got += drain(pair.ends[1]);
    }
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
  for (const Pair& pair : reachable.pairs) {
    ::close(pair.ends[0]);
    ::close(pair.ends[1]);
  }
  return 0;
}
