#pragma once

#include <cstdint>
#include <span>

namespace carrel::microvm {

// Where the bytes of a read-only block device come from.
class Blocks {
 public:
  virtual ~Blocks() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  // Whole blocks of 4096 bytes. False: an error of the device.
  virtual bool read(std::uint64_t offset, std::span<char> out) = 0;
};

// Serves a block device to the one who is at the other end of the socket, by the protocol of
// network block devices: the handshake, and reads. What comes is hostile: whatever is malformed,
// out of bounds or anything but a read ends it. Returns when the other end has left.
void serve_blocks(int socket, Blocks& blocks);

}  // namespace carrel::microvm
