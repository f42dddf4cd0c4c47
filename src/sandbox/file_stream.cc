#include "sandbox/file_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "protocol/files.h"

namespace carrel::sandbox {

namespace {

using protocol::FrameType;
using protocol::kHeaderSize;

constexpr std::size_t kInCapacity = 512U << 10;
constexpr std::size_t kOutCapacity = 256U << 10;
static_assert(kInCapacity >= 2 * (protocol::kMaxGuestPayload + kHeaderSize));

Error malformed_file_frame() {
  return Error{Code::kGone, 0, "the sandbox's file worker sent something that is not a frame",
               "the sandbox is not to be trusted any more: remove it"};
}

Error silent() { return Error{Code::kTimeout, 0, "the sandbox's file worker does not answer", {}}; }

Error gone() {
  return Error{Code::kGone, 0, "the sandbox's file worker ended",
               "the sandbox may be at its limit of memory or processes, or out of time"};
}

void put_header(char* at, FrameType type, std::size_t size) {
  protocol::write_header(
      {static_cast<std::uint32_t>(size), 0, type},
      std::span<unsigned char, kHeaderSize>(reinterpret_cast<unsigned char*>(at), kHeaderSize));
}

}  // namespace

FileStream::FileStream(UniqueFd fd)
    : fd_(std::move(fd)),
      in_(std::make_unique_for_overwrite<char[]>(kInCapacity)),
      out_(std::make_unique_for_overwrite<char[]>(kOutCapacity)) {}

// Reads what is there; nothing is fine.
Status FileStream::fill() {
  if (in_start_ > 0) {
    std::memmove(in_.get(), in_.get() + in_start_, in_end_ - in_start_);
    in_end_ -= in_start_;
    in_start_ = 0;
  }
  const ssize_t n = ::recv(fd_.get(), in_.get() + in_end_, kInCapacity - in_end_, MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
    return gone();
  }
  in_end_ += n > 0 ? static_cast<std::size_t>(n) : 0;
  return {};
}

Result<bool> FileStream::take(FileFrame& frame) {
  const std::size_t have = in_end_ - in_start_;
  if (have < kHeaderSize) {
    return false;
  }
  protocol::FrameHeader header;
  std::span<const unsigned char, kHeaderSize> head(
      reinterpret_cast<const unsigned char*>(in_.get() + in_start_), kHeaderSize);
  if (!protocol::parse_header(head, protocol::kMaxGuestPayload, header)) {
    return malformed_file_frame();
  }
  if (have - kHeaderSize < header.size) {
    return false;
  }
  frame = {header.type, {in_.get() + in_start_ + kHeaderSize, header.size}};
  in_start_ += kHeaderSize + header.size;
  return true;
}

Result<bool> FileStream::has_frame() {
  const std::size_t before = in_start_;
  FileFrame frame;
  CARREL_ASSIGN(const bool whole, take(frame));
  in_start_ = before;
  return whole;
}

Result<FileFrame> FileStream::next() {
  CARREL_TRY(flush());
  FileFrame frame;
  for (;;) {
    CARREL_ASSIGN(const bool whole, take(frame));
    if (whole) {
      return frame;
    }
    pollfd wait{fd_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(patience_.count()));
    if (ready == 0) {
      return silent();
    }
    if (ready > 0) {
      CARREL_TRY(fill());
    }
  }
}

// There is no room: waits for some, and takes what the worker says meanwhile, so that neither waits
// for the other.
Status FileStream::wait_to_send() {
  pollfd wait{fd_.get(), POLLOUT | POLLIN, 0};
  if (::poll(&wait, 1, static_cast<int>(patience_.count())) == 0) {
    return silent();
  }
  if ((wait.revents & POLLIN) == 0) {
    return {};
  }
  CARREL_TRY(fill());
  FileFrame frame;
  while (early_) {
    CARREL_ASSIGN(const bool whole, take(frame));
    if (!whole) {
      break;
    }
    CARREL_TRY(early_(frame));
  }
  return {};
}

Status FileStream::flush() {
  std::string_view rest(out_.get(), out_size_);
  out_size_ = 0;
  while (!rest.empty() && !deaf_) {
    const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      CARREL_TRY(wait_to_send());
    } else if (errno != EINTR) {
      deaf_ = true;  // its last words are still to be read
    }
  }
  return {};
}

Status FileStream::send(FrameType type, std::string_view payload) {
  if (kHeaderSize + payload.size() > kOutCapacity - out_size_) {
    CARREL_TRY(flush());
  }
  if (kHeaderSize + payload.size() <= kOutCapacity) {
    put_header(out_.get() + out_size_, type, payload.size());
    if (!payload.empty()) {
      std::memcpy(out_.get() + out_size_ + kHeaderSize, payload.data(), payload.size());
    }
    out_size_ += kHeaderSize + payload.size();
    return {};
  }
  put_header(out_.get(), type, payload.size());
  out_size_ = kHeaderSize;
  while (!payload.empty()) {
    const std::size_t size = std::min(payload.size(), kOutCapacity - out_size_);
    std::memcpy(out_.get() + out_size_, payload.data(), size);
    out_size_ += size;
    payload.remove_prefix(size);
    CARREL_TRY(flush());
  }
  return {};
}

Result<char*> FileStream::place() {
  if (kHeaderSize + protocol::kFilePiece > kOutCapacity - out_size_) {
    CARREL_TRY(flush());
  }
  return out_.get() + out_size_ + kHeaderSize;
}

void FileStream::placed(std::size_t size) {
  put_header(out_.get() + out_size_, FrameType::kFileData, size);
  out_size_ += kHeaderSize + size;
}

}  // namespace carrel::sandbox
