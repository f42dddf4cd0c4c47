#pragma once

#include <cstddef>
#include <span>

#include "guest/failure.h"
#include "protocol/boot.h"
#include "protocol/frame.h"

// What a guest hears from whoever makes it, before it serves anybody.
namespace carrel::guest {

inline constexpr int kControl = 3;  // the stream of its maker

struct Received {
  char* payload = nullptr;  // of malloc()
  std::size_t size = 0;
  int descriptors[protocol::kMaxDescriptors];
  std::size_t count = 0;

  [[nodiscard]] std::string_view view() const { return {payload, size}; }
};

// A frame of this type; its header carries the descriptors. False when something else came, or
// nothing any more.
bool receive(int socket, protocol::FrameType type, Received& frame);
// One of any type.
bool receive_any(int socket, protocol::FrameType& type, Received& frame);

// A frame to the maker.
bool tell(protocol::FrameType type, std::span<const unsigned char> payload);

// Tells the maker what went wrong, and ends when it knows.
[[noreturn]] void give_up(const Failure& failure);

}  // namespace carrel::guest
