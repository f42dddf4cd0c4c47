#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/files.h"
#include "protocol/frame.h"

namespace carrel::guest {

// A file worker's end of the connection to the host: frames in both directions, gathered in
// buffers of fixed size. Blocking; what cannot be read or written any more ends the conversation.
class FileChannel {
 public:
  // False when there is no memory.
  bool open(int input, int output);

  // The next frame. What was written is sent before it is waited for. False at the end of the
  // connection, and after something that is not a frame. The payload is valid until the next call.
  bool next(protocol::FrameHeader& header, std::string_view& payload);

  // False when the host is gone.
  bool send(protocol::FrameType type, std::string_view payload = {});
  bool send_entry(const protocol::FileEntry& entry);
  bool send_outcome(protocol::FrameType type, const protocol::FileOutcome& outcome);
  bool send_number(protocol::FrameType type, std::uint64_t value);

  // A place for up to kFilePiece bytes of contents, and the sending of those that were put there.
  // Null when the host is gone.
  char* place();
  bool placed(std::size_t size);

  bool flush();
  // Whether the host has hung up; asks at every few hundredth call.
  bool gone();
  [[nodiscard]] int input() const { return input_; }

 private:
  bool reserve(std::size_t size);
  bool fill();

  int input_ = -1;
  int output_ = -1;
  bool broken_ = false;
  unsigned calls_ = 0;
  char* in_ = nullptr;
  std::size_t in_start_ = 0;
  std::size_t in_end_ = 0;
  char* out_ = nullptr;
  std::size_t out_size_ = 0;
};

}  // namespace carrel::guest
