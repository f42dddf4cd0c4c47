#include "guest/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace carrel::guest {

namespace {
constexpr std::size_t kInitialIn = 16U << 10;
}

void Client::open(int fd) {
  fd_ = fd;
  greeted_ = false;
  watched_for_room_ = false;
  in_start_ = in_end_ = 0;
  out_start_ = out_size_ = 0;
}

void Client::close() {
  ::close(fd_);
  fd_ = -1;
  free(in_);
  free(out_);
  in_ = out_ = nullptr;
  in_capacity_ = 0;
}

bool Client::fill() {
  if (in_start_ > 0) {
    memmove(in_, in_ + in_start_, in_end_ - in_start_);
    in_end_ -= in_start_;
    in_start_ = 0;
  }
  if (in_capacity_ - in_end_ < kInitialIn / 2) {
    std::size_t wanted = in_capacity_ == 0 ? kInitialIn : in_capacity_ * 2;
    constexpr std::size_t kMost = protocol::kMaxPayload + protocol::kHeaderSize + kInitialIn;
    wanted = wanted > kMost ? kMost : wanted;
    if (wanted > in_capacity_) {
      char* grown = static_cast<char*>(realloc(in_, wanted));
      if (grown == nullptr) {
        return false;
      }
      in_ = grown;
      in_capacity_ = wanted;
    }
  }
  ssize_t n = read(fd_, in_ + in_end_, in_capacity_ - in_end_);
  if (n < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  in_end_ += static_cast<std::size_t>(n);
  return n > 0;
}

bool Client::next(protocol::FrameHeader& header, std::string_view& payload, bool& broken) {
  broken = false;
  if (in_end_ - in_start_ < protocol::kHeaderSize) {
    return false;
  }
  std::span<const unsigned char, protocol::kHeaderSize> bytes(
      reinterpret_cast<const unsigned char*>(in_ + in_start_), protocol::kHeaderSize);
  if (!protocol::parse_header(bytes, protocol::kMaxPayload, header)) {
    broken = true;
    return false;
  }
  if (in_end_ - in_start_ - protocol::kHeaderSize < header.size) {
    return false;
  }
  payload = {in_ + in_start_ + protocol::kHeaderSize, header.size};
  in_start_ += protocol::kHeaderSize + header.size;
  return true;
}

std::size_t Client::room() const {
  std::size_t free = kOutCapacity - out_size_;
  return free > kReserve ? free - kReserve : 0;
}

bool Client::send(std::uint32_t channel, protocol::FrameType type, std::string_view head,
                  std::string_view body) {
  std::size_t size = protocol::kHeaderSize + head.size() + body.size();
  std::size_t limit = type == protocol::FrameType::kOutput ? room() : kOutCapacity - out_size_;
  if (size > limit) {
    return false;
  }
  if (out_ == nullptr) {
    out_ = static_cast<char*>(malloc(kOutCapacity));
    if (out_ == nullptr) {
      return false;
    }
  }
  if (out_start_ + out_size_ + size > kOutCapacity) {
    memmove(out_, out_ + out_start_, out_size_);
    out_start_ = 0;
  }
  char* at = out_ + out_start_ + out_size_;
  protocol::FrameHeader header{static_cast<std::uint32_t>(head.size() + body.size()), channel,
                               type};
  protocol::write_header(header, std::span<unsigned char, protocol::kHeaderSize>(
                                     reinterpret_cast<unsigned char*>(at), protocol::kHeaderSize));
  if (!head.empty()) {
    memcpy(at + protocol::kHeaderSize, head.data(), head.size());
  }
  if (!body.empty()) {
    memcpy(at + protocol::kHeaderSize + head.size(), body.data(), body.size());
  }
  out_size_ += size;
  return true;
}

bool Client::flush() {
  while (out_size_ > 0) {
    ssize_t n = ::send(fd_, out_ + out_start_, out_size_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      return errno == EAGAIN || errno == EINTR;
    }
    out_start_ += static_cast<std::size_t>(n);
    out_size_ -= static_cast<std::size_t>(n);
  }
  out_start_ = 0;
  return true;
}

}  // namespace carrel::guest
