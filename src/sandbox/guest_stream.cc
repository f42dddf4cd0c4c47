#include "sandbox/guest_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace carrel::sandbox {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::size_t kReadSize = 64U << 10;
constexpr std::chrono::seconds kLongestRead{1};

// What is left until then, rounded up; 0 when it is over.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

Error malformed() {
  return Error{Code::kGone, 0, "the sandbox's guest sent something that is not a frame",
               "the sandbox is not to be trusted any more: remove it"};
}

}  // namespace

Status GuestStream::send(std::uint32_t channel, protocol::FrameType type,
                         std::string_view payload) {
  if (payload.size() > protocol::kMaxPayload) {
    return Error{Code::kResource,
                 0,
                 "the request is " + std::to_string(payload.size()) + " bytes, over the limit of " +
                     std::to_string(protocol::kMaxPayload),
                 {}};
  }
  std::array<unsigned char, protocol::kHeaderSize> head{};
  protocol::write_header({static_cast<std::uint32_t>(payload.size()), channel, type}, head);
  std::string frame(reinterpret_cast<const char*>(head.data()), head.size());
  frame += payload;
  std::string_view rest = frame;
  const Clock::time_point deadline = Clock::now() + patience_;
  while (!rest.empty()) {
    ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) {
        continue;
      }
      if (errno == EAGAIN) {
        const int left = milliseconds_until(deadline);
        if (left == 0) {
          return Error{Code::kTimeout, 0, "the sandbox's guest does not read", {}};
        }
        pollfd wait{fd_.get(), POLLOUT, 0};
        ::poll(&wait, 1, left);
        continue;
      }
      return Error{Code::kGone, 0, "the sandbox ended", {}};
    }
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  unanswered_ = true;
  return {};
}

// Whether anything was read. With MSG_DONTWAIT it does not wait, otherwise for a while.
Result<bool> GuestStream::read_some(int flags) {
  if (start_ > 0) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  if (piece_ == nullptr) {
    piece_ = std::make_unique_for_overwrite<char[]>(kReadSize);
  }
  ssize_t n = ::recv(fd_.get(), piece_.get(), kReadSize, flags);
  if (n > 0) {
    buffer_.append(piece_.get(), static_cast<std::size_t>(n));
  }
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
    return Error{Code::kGone, 0, "the sandbox ended", {}};
  }
  return n > 0;
}

Status GuestStream::fill() {
  CARREL_TRY(read_some(MSG_DONTWAIT));
  return {};
}

Status GuestStream::limit_reads() {
  const timeval most{kLongestRead.count(), 0};
  if (!limited_ && ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) != 0) {
    return system_error("set a timeout on the stream to the sandbox");
  }
  limited_ = true;
  return {};
}

Status GuestStream::fill_until(Clock::time_point deadline) {
  using protocol::Eagerness;
  const Clock::time_point start = Clock::now();
  auto took = [&start] { return static_cast<std::uint64_t>((Clock::now() - start) / 1us); };
  const Eagerness::Way way = eagerness_.begin();
  const std::uint64_t longest = unanswered_ ? Eagerness::kLongestForAnswer : Eagerness::kLongest;
  unanswered_ = false;
  while (way == Eagerness::Way::kAsk && took() < longest && Clock::now() < deadline) {
    CARREL_ASSIGN(bool some, read_some(MSG_DONTWAIT));
    if (some) {
      eagerness_.note(0, way, longest);
      return {};
    }
    ::sched_yield();  // the one who is to answer may be on this processor
  }
  bool some = false;
  for (Clock::time_point now = start; !some && now < deadline; now = Clock::now()) {
    if (deadline - now < kLongestRead) {
      pollfd wait{fd_.get(), POLLIN, 0};
      ::poll(&wait, 1, milliseconds_until(deadline));
      CARREL_ASSIGN(some, read_some(MSG_DONTWAIT));
    } else {
      CARREL_TRY(limit_reads());
      CARREL_ASSIGN(some, read_some(0));
    }
  }
  eagerness_.note(took(), way, longest);
  return {};
}

Result<bool> GuestStream::next(GuestFrame& frame) {
  std::string_view bytes = std::string_view(buffer_).substr(start_);
  if (bytes.size() < protocol::kHeaderSize) {
    return false;
  }
  protocol::FrameHeader header;
  std::span<const unsigned char, protocol::kHeaderSize> head(
      reinterpret_cast<const unsigned char*>(bytes.data()), protocol::kHeaderSize);
  if (!protocol::parse_header(head, protocol::kMaxGuestPayload, header)) {
    return malformed();
  }
  if (bytes.size() - protocol::kHeaderSize < header.size) {
    return false;
  }
  frame.channel = header.channel;
  frame.type = header.type;
  frame.payload.assign(bytes.substr(protocol::kHeaderSize, header.size));
  start_ += protocol::kHeaderSize + header.size;
  return true;
}

Result<GuestFrame> GuestStream::wait(int timeout_ms) {
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  GuestFrame frame;
  for (;;) {
    CARREL_ASSIGN(bool whole, next(frame));
    if (whole) {
      return frame;
    }
    pollfd wait{fd_.get(), POLLIN, 0};
    int ready = ::poll(&wait, 1, milliseconds_until(deadline));
    if (ready == 0) {
      return Error{Code::kTimeout, 0, "the sandbox's guest does not answer", {}};
    }
    CARREL_TRY(fill());
  }
}

Status GuestStream::greet(const std::string& id, int timeout_ms) {
  std::array<unsigned char, 64> buffer{};
  protocol::Writer writer(buffer);
  writer.u32(protocol::kVersion);
  writer.bytes(id);
  CARREL_TRY(send(0, protocol::FrameType::kHello,
                  {reinterpret_cast<const char*>(buffer.data()), writer.size()}));
  CARREL_ASSIGN(GuestFrame frame, wait(timeout_ms));
  protocol::Reader reader(
      {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
  std::uint32_t version = reader.u32();
  std::string_view answered = reader.text(64);
  if (frame.type != protocol::FrameType::kWelcome || !reader.finished() ||
      version != protocol::kVersion || answered != id) {
    return Error{
        Code::kGone, 0, "the socket of sandbox '" + id + "' belongs to something else", {}};
  }
  return {};
}

}  // namespace carrel::sandbox
