#include "guest/file_channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;
using protocol::kHeaderSize;

// Memory that is not touched costs nothing: a whole request fits, and little of it is used.
constexpr std::size_t kInCapacity = protocol::kMaxFileRequest + kHeaderSize + (256U << 10);
constexpr std::size_t kRead = 256U << 10;
constexpr std::size_t kOutCapacity = 256U << 10;

char* reserve_memory(std::size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

}  // namespace

bool FileChannel::open(int input, int output) {
  input_ = input;
  output_ = output;
  in_ = reserve_memory(kInCapacity);
  out_ = reserve_memory(kOutCapacity);
  return in_ != nullptr && out_ != nullptr;
}

bool FileChannel::fill() {
  if (in_start_ == in_end_) {
    in_start_ = in_end_ = 0;
  } else if (kInCapacity - in_end_ < kRead) {
    memmove(in_, in_ + in_start_, in_end_ - in_start_);
    in_end_ -= in_start_;
    in_start_ = 0;
  }
  std::size_t size = kInCapacity - in_end_ < kRead ? kInCapacity - in_end_ : kRead;
  ssize_t n;
  do {
    n = read(input_, in_ + in_end_, size);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) {
    broken_ = true;
    return false;
  }
  in_end_ += static_cast<std::size_t>(n);
  return true;
}

bool FileChannel::next(protocol::FrameHeader& header, std::string_view& payload) {
  while (!broken_) {
    const std::size_t have = in_end_ - in_start_;
    if (have >= kHeaderSize) {
      std::span<const unsigned char, kHeaderSize> bytes(
          reinterpret_cast<const unsigned char*>(in_ + in_start_), kHeaderSize);
      if (!protocol::parse_header(bytes, protocol::kMaxFileRequest, header)) {
        broken_ = true;
        return false;
      }
      if (have - kHeaderSize >= header.size) {
        payload = {in_ + in_start_ + kHeaderSize, header.size};
        in_start_ += kHeaderSize + header.size;
        return true;
      }
    }
    if (!flush() || !fill()) {
      return false;
    }
  }
  return false;
}

bool FileChannel::reserve(std::size_t size) {
  return !broken_ && (kOutCapacity - out_size_ >= size || flush());
}

bool FileChannel::send(FrameType type, std::string_view payload) {
  if (!reserve(kHeaderSize + payload.size())) {
    return false;
  }
  char* at = out_ + out_size_;
  protocol::write_header(
      {static_cast<std::uint32_t>(payload.size()), 0, type},
      std::span<unsigned char, kHeaderSize>(reinterpret_cast<unsigned char*>(at), kHeaderSize));
  if (!payload.empty()) {
    memcpy(at + kHeaderSize, payload.data(), payload.size());
  }
  out_size_ += kHeaderSize + payload.size();
  return true;
}

bool FileChannel::send_entry(const protocol::FileEntry& entry) {
  unsigned char buffer[2 * protocol::kMaxPath + 64];
  protocol::Writer writer(buffer);
  protocol::write_file_entry(writer, entry);
  return send(FrameType::kFileEntry, {reinterpret_cast<const char*>(buffer), writer.size()});
}

bool FileChannel::send_outcome(FrameType type, const protocol::FileOutcome& outcome) {
  unsigned char buffer[protocol::kMaxPath + protocol::kMaxReason + 64];
  protocol::Writer writer(buffer);
  protocol::write_file_outcome(writer, outcome);
  return send(type, {reinterpret_cast<const char*>(buffer), writer.size()});
}

bool FileChannel::send_number(FrameType type, std::uint64_t value) {
  unsigned char buffer[8];
  protocol::Writer writer(buffer);
  writer.u64(value);
  return send(type, {reinterpret_cast<const char*>(buffer), writer.size()});
}

char* FileChannel::place() {
  return reserve(kHeaderSize + protocol::kFilePiece) ? out_ + out_size_ + kHeaderSize : nullptr;
}

bool FileChannel::placed(std::size_t size) {
  protocol::write_header({static_cast<std::uint32_t>(size), 0, FrameType::kFileData},
                         std::span<unsigned char, kHeaderSize>(
                             reinterpret_cast<unsigned char*>(out_ + out_size_), kHeaderSize));
  out_size_ += kHeaderSize + size;
  return true;
}

bool FileChannel::flush() {
  if (!broken_ && out_size_ > 0 && !write_whole(output_, {out_, out_size_})) {
    broken_ = true;
  }
  out_size_ = 0;
  return !broken_;
}

bool FileChannel::gone() {
  constexpr unsigned kEvery = 256;
  if (!broken_ && ++calls_ % kEvery == 0) {
    struct pollfd wait{input_, POLLRDHUP, 0};
    broken_ = poll(&wait, 1, 0) > 0 && (wait.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }
  return broken_;
}

}  // namespace carrel::guest
