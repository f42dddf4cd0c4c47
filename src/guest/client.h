#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/frame.h"

namespace carrel::guest {

// One connection from the host: what came in and is not yet a whole frame, and what is still to go
// out. The host is trusted to be well-meaning, not to be bug-free: limits hold here too.
class Client {
 public:
  static constexpr std::size_t kOutCapacity = 256U << 10;
  // Output leaves this much for frames that must get through.
  static constexpr std::size_t kReserve = 64U << 10;

  void open(int fd);
  void close();
  [[nodiscard]] bool used() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool greeted() const { return greeted_; }
  void set_greeted() { greeted_ = true; }

  // Reads what is there. False when the connection is over.
  bool fill();
  // The next whole frame, if there is one. `broken` is set when the bytes make no sense. The
  // payload is valid until the next call of fill().
  bool next(protocol::FrameHeader& header, std::string_view& payload, bool& broken);

  // Queues a frame made of two pieces. False when there is no room: for kOutput that means later,
  // for the rest the client is hopelessly behind.
  bool send(std::uint32_t channel, protocol::FrameType type, std::string_view head,
            std::string_view body = {});
  [[nodiscard]] std::size_t room() const;
  // Writes what it can. False when the connection is over.
  bool flush();
  [[nodiscard]] bool has_output() const { return out_size_ > 0; }
  // Whether nothing is on the way in either direction, as far as is known here.
  [[nodiscard]] bool idle() const { return in_start_ == in_end_ && !has_output(); }
  // Whether the event loop watches for room to write.
  [[nodiscard]] bool watched_for_room() const { return watched_for_room_; }
  void note_watch() { watched_for_room_ = has_output(); }

 private:
  int fd_ = -1;
  bool greeted_ = false;
  bool watched_for_room_ = false;
  char* in_ = nullptr;
  std::size_t in_capacity_ = 0;
  std::size_t in_start_ = 0;
  std::size_t in_end_ = 0;
  char* out_ = nullptr;
  std::size_t out_start_ = 0;
  std::size_t out_size_ = 0;
};

}  // namespace carrel::guest
