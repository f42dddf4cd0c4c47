// Any bytes from the host to the guest, in pieces of any size: the guest's Client finds the frames
// that are there and no others, and stops at the first thing that is none.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "guest/client.h"
#include "protocol/frame.h"

namespace {

namespace protocol = carrel::protocol;
using carrel::guest::Client;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

// The frames of the same bytes, read in one go.
class Expected {
 public:
  explicit Expected(std::string_view bytes) : bytes_(bytes) {}

  void take(const protocol::FrameHeader& header, std::string_view payload) {
    require(!broken());
    protocol::FrameHeader own;
    require(protocol::parse_header(head(), protocol::kMaxPayload, own));
    require(own.size == header.size && own.channel == header.channel && own.type == header.type);
    require(bytes_.substr(protocol::kHeaderSize, own.size) == payload);
    bytes_.remove_prefix(protocol::kHeaderSize + own.size);
  }
  // Whether what is left begins with something that is no frame.
  [[nodiscard]] bool broken() const {
    protocol::FrameHeader own;
    return bytes_.size() >= protocol::kHeaderSize &&
           !protocol::parse_header(head(), protocol::kMaxPayload, own);
  }
  // Whether a whole frame is left.
  [[nodiscard]] bool more() const {
    protocol::FrameHeader own;
    return bytes_.size() >= protocol::kHeaderSize &&
           protocol::parse_header(head(), protocol::kMaxPayload, own) &&
           bytes_.size() - protocol::kHeaderSize >= own.size;
  }

 private:
  [[nodiscard]] std::span<const unsigned char, protocol::kHeaderSize> head() const {
    return std::span<const unsigned char, protocol::kHeaderSize>(
        reinterpret_cast<const unsigned char*>(bytes_.data()), protocol::kHeaderSize);
  }
  std::string_view bytes_;
};

// Takes what is whole and answers each frame with its own payload. False at a broken one.
bool take_frames(Client& client, Expected& expected) {
  protocol::FrameHeader header;
  std::string_view payload;
  bool broken = false;
  while (client.next(header, payload, broken)) {
    expected.take(header, payload);
    client.send(header.channel, protocol::FrameType::kOutput, "head", payload);
    require(client.room() <= Client::kOutCapacity);
  }
  return !broken;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::size_t piece = std::size_t{data[0]} + 1;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Expected expected(bytes);
  std::array<int, 2> ends{-1, -1};
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
  Client client;
  client.open(ends[0]);
  bool whole = true;
  while (whole && !bytes.empty()) {
    const std::size_t now = std::min(piece, bytes.size());
    require(::send(ends[1], bytes.data(), now, MSG_NOSIGNAL) == static_cast<ssize_t>(now));
    bytes.remove_prefix(now);
    require(client.fill());
    whole = take_frames(client, expected);
    require(client.flush());
    std::array<char, 4096> answers{};
    while (::recv(ends[1], answers.data(), answers.size(), MSG_DONTWAIT) > 0) {
    }
  }
  require(whole ? !expected.more() && !expected.broken() : expected.broken());
  ::close(ends[1]);
  require(!client.fill() || !whole);
  client.close();
  return 0;
}
