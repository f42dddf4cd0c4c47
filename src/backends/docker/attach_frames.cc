#include "backends/docker/attach_frames.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace carrel::docker {

namespace {

constexpr unsigned char kStandardOutput = 1;

// 0: it is none.
std::uint32_t size_in(std::span<const unsigned char, AttachFrames::kHead> head) {
  if (head[0] != kStandardOutput || head[1] != 0 || head[2] != 0 || head[3] != 0) {
    return 0;
  }
  std::uint32_t size = 0;
  for (std::size_t i = 4; i < AttachFrames::kHead; ++i) {
    size = size << 8U | head[i];
  }
  return size <= AttachFrames::kLargest ? size : 0;
}

}  // namespace

std::optional<std::size_t> AttachFrames::strip(std::span<char> bytes) {
  std::size_t kept = 0;
  for (std::size_t at = 0; at < bytes.size() && !refused_;) {
    if (left_ > 0) {
      const std::size_t piece = std::min(left_, bytes.size() - at);
      std::memmove(bytes.data() + kept, bytes.data() + at, piece);
      kept += piece;
      at += piece;
      left_ -= piece;
      continue;
    }
    head_.at(have_++) = static_cast<unsigned char>(bytes[at++]);
    if (have_ == kHead) {
      have_ = 0;
      left_ = size_in(head_);
      refused_ = left_ == 0;
    }
  }
  return refused_ ? std::nullopt : std::optional(kept);
}

long AttachFrames::read(int fd, std::span<char> out) {
  for (;;) {
    const ssize_t n = ::read(fd, out.data(), out.size());
    if (n <= 0) {
      return n;
    }
    const auto kept = strip(out.first(static_cast<std::size_t>(n)));
    if (!kept.has_value()) {
      errno = EBADMSG;
      return -1;
    }
    // Nothing but a head is not the end.
    if (*kept > 0) {
      return static_cast<long>(*kept);
    }
  }
}

}  // namespace carrel::docker
