#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace carrel::docker {

// What an engine puts around the output of a container that somebody is attached to: frames of a
// byte that tells the stream, three zeros, four bytes of size, and the bytes. Only standard output
// was asked for. What is anything else is refused for good.
class AttachFrames {
 public:
  static constexpr std::size_t kHead = 8;
  static constexpr std::uint32_t kLargest = 1U << 20;  // engines write 32 KiB at a time

  // Takes the heads out of bytes that came, in place, and returns how many bytes are left, which
  // are the container's. Nothing: these are no such frames.
  std::optional<std::size_t> strip(std::span<char> bytes);
  // Whether the last frame is whole.
  [[nodiscard]] bool between() const { return !refused_ && have_ == 0 && left_ == 0; }

  // As read(), of a descriptor that does not block; EBADMSG: what came is refused.
  long read(int fd, std::span<char> out);

 private:
  std::array<unsigned char, kHead> head_{};
  std::size_t have_ = 0;  // of a head
  std::size_t left_ = 0;  // of a frame
  bool refused_ = false;
};

}  // namespace carrel::docker
