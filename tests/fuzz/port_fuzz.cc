// What a guest says about a relay is 16 bytes of one form, or there is no connection; no byte after
// them is taken.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "protocol/frame.h"
#include "sandbox/port.h"

namespace {

using carrel::UniqueFd;
using carrel::sandbox::GuestStream;
using carrel::sandbox::Port;

constexpr std::size_t kAnswer = carrel::protocol::kHeaderSize + 4;

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

std::string answer(std::uint32_t error) {
  std::array<unsigned char, kAnswer> bytes{};
  carrel::protocol::write_header(
      {4, 1, carrel::protocol::FrameType::kConnected},
      std::span<unsigned char, carrel::protocol::kHeaderSize>(bytes.data(), kAnswer - 4));
  carrel::protocol::Writer writer({bytes.data() + kAnswer - 4, 4});
  writer.u32(error);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A stream on which these bytes wait, and nothing after them.
GuestStream stream_with(std::string_view bytes) {
  std::array<int, 2> ends{};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  require(::send(ends[1], bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
  ::shutdown(ends[1], SHUT_WR);
  static UniqueFd guests;  // it still hears what it is asked
  static UniqueFd before;
  before = std::move(guests);
  guests.reset(ends[1]);
  return GuestStream(UniqueFd(ends[0]));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 4096;
  const std::string said(reinterpret_cast<const char*>(data), size < kMost ? size : kMost);
  Port port(stream_with(answer(EOPNOTSUPP)), 80, [&] { return stream_with(said); });
  auto begun = port.begin(carrel::protocol::LoopbackFamily::kFour);
  require(begun.ok() && begun->awaited == Port::Awaited::kAnswer);
  if (port.finish(begun.value()).ok()) {
    require(said.starts_with(answer(0)));
    std::string rest(kMost, '\0');
    const ssize_t n = ::recv(begun->socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    rest.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    require(rest == said.substr(kAnswer));
  }
  return 0;
}
