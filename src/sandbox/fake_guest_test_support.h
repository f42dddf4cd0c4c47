#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"
#include "protocol/frame.h"
#include "protocol/message.h"
#include "sandbox/guest_stream.h"

namespace carrel::sandbox {

// The guest's end of a stream, played by a test: it reads what the host sends and answers with
// whatever the test wants. Reading gives up after ten seconds.
class FakeGuest {
 public:
  struct Frame {
    protocol::FrameHeader header;
    std::string payload;
  };

  explicit FakeGuest(UniqueFd fd) : fd_(std::move(fd)) {
    const timeval limit{10, 0};
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  }

  [[nodiscard]] int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

  // The next frame of the host; nothing when the host closed the stream.
  std::optional<Frame> read() {
    std::array<unsigned char, protocol::kHeaderSize> head{};
    Frame frame;
    if (!read_bytes(reinterpret_cast<char*>(head.data()), head.size()) ||
        !protocol::parse_header(head, protocol::kMaxPayload, frame.header)) {
      return std::nullopt;
    }
    frame.payload.resize(frame.header.size);
    if (!read_bytes(frame.payload.data(), frame.payload.size())) {
      return std::nullopt;
    }
    return frame;
  }

  // Whether the host sends something within this time.
  [[nodiscard]] bool hears_something(int milliseconds) const {
    pollfd wait{fd_.get(), POLLIN, 0};
    return ::poll(&wait, 1, milliseconds) > 0;
  }

  // False when the host is gone.
  bool write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool send(protocol::FrameType type, std::string_view payload, std::uint32_t channel = 1) {
    return write(frame(type, payload, channel));
  }

  static std::string frame(protocol::FrameType type, std::string_view payload,
                           std::uint32_t channel = 1) {
    std::array<unsigned char, protocol::kHeaderSize> head{};
    protocol::write_header({static_cast<std::uint32_t>(payload.size()), channel, type}, head);
    return std::string(reinterpret_cast<const char*>(head.data()), head.size()) +
           std::string(payload);
  }

 private:
  bool read_bytes(char* data, std::size_t size) {
    while (size > 0) {
      const ssize_t n = ::recv(fd_.get(), data, size, 0);
      if (n <= 0) {
        return false;
      }
      data += n;
      size -= static_cast<std::size_t>(n);
    }
    return true;
  }

  UniqueFd fd_;
};

// A stream and the guest at its other end.
struct StreamAndGuest {
  GuestStream stream;
  FakeGuest guest;

  static StreamAndGuest make() {
    std::array<int, 2> fds{-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    return {GuestStream(UniqueFd(fds[0])), FakeGuest(UniqueFd(fds[1]))};
  }
};

// A payload from fields: `payload([](protocol::Writer& w) { w.u32(1); })`.
template <typename Write>
std::string payload(Write write) {
  std::string bytes(8192, '\0');
  protocol::Writer writer({reinterpret_cast<unsigned char*>(bytes.data()), bytes.size()});
  write(writer);
  EXPECT_TRUE(writer.ok());
  bytes.resize(writer.size());
  return bytes;
}

inline std::string exit_payload(const protocol::Exit& end) {
  return payload([&](protocol::Writer& writer) { protocol::write_exit(writer, end); });
}

inline std::string output_payload(std::uint8_t stream, std::uint64_t offset,
                                  std::string_view data) {
  return payload([&](protocol::Writer& writer) {
    writer.u8(stream);
    writer.u64(offset);
    writer.raw(data);
  });
}

}  // namespace carrel::sandbox
