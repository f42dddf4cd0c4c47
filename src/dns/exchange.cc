#include "dns/exchange.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace carrel::dns {
namespace {

constexpr int kMostDatagramsAtOnce = 16;
constexpr std::size_t kSizeBytes = 2;

bool means_later(int reason) { return reason == EAGAIN || reason == EINPROGRESS; }

}  // namespace

Exchange::Exchange(const SocketAddress& server, Lookup lookup, Transport transport)
    : lookup_(std::move(lookup)),
      transport_(transport),
      sending_(transport == Transport::kTcp ? write_stream_lookup(lookup_)
                                            : write_lookup(lookup_)) {
  const int type = transport == Transport::kTcp ? SOCK_STREAM : SOCK_DGRAM;
  socket_ = UniqueFd(::socket(server.storage.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid() ||
      (::connect(socket_.get(), server.get(), server.size) != 0 && !means_later(errno))) {
    fail(errno);
  }
}

void Exchange::fail(int reason) {
  state_ = State::kFailed;
  failure_ = reason;
}

Exchange::State Exchange::advance() {
  if (state_ == State::kWaiting) {
    send_rest();
  }
  if (state_ == State::kWaiting && sent_ == sending_.size()) {
    transport_ == Transport::kTcp ? receive_stream() : receive_datagrams();
  }
  return state_;
}

pollfd Exchange::awaited() const {
  const bool sending = sent_ < sending_.size();
  return {socket_.get(), static_cast<short>(sending ? POLLOUT : POLLIN), 0};
}

void Exchange::send_rest() {
  while (sent_ < sending_.size()) {
    const ssize_t size =
        ::send(socket_.get(), sending_.data() + sent_, sending_.size() - sent_, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) {
      continue;
    }
    if (size < 0) {
      return means_later(errno) ? void() : fail(errno);
    }
    sent_ += static_cast<std::size_t>(size);
  }
}

void Exchange::receive_datagrams() {
  std::array<std::uint8_t, kLargestMessage> buffer;
  for (int i = 0; i < kMostDatagramsAtOnce; ++i) {
    const ssize_t size = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (size < 0) {
      return means_later(errno) || errno == EINTR ? void() : fail(errno);
    }
    auto parsed = parse_answer({buffer.data(), static_cast<std::size_t>(size)}, lookup_);
    if (parsed.parsed()) {
      answer_ = std::move(parsed.value);
      state_ = State::kAnswered;
      return;
    }
    if (parsed.value.unusable) {
      return fail(EBADMSG);
    }
  }
}

// With the size itself, which has to come first.
std::size_t Exchange::wanted_bytes() const {
  if (received_.size() < kSizeBytes) {
    return kSizeBytes;
  }
  return kSizeBytes + (static_cast<std::size_t>(received_[0]) << 8U | received_[1]);
}

void Exchange::receive_stream() {
  std::array<std::uint8_t, kLargestMessage> buffer;
  while (received_.size() < wanted_bytes()) {
    const std::size_t most = std::min(buffer.size(), wanted_bytes() - received_.size());
    const ssize_t size = ::recv(socket_.get(), buffer.data(), most, 0);
    if (size < 0) {
      return means_later(errno) || errno == EINTR ? void() : fail(errno);
    }
    if (size == 0) {
      return fail(ECONNRESET);
    }
    received_.insert(received_.end(), buffer.begin(), buffer.begin() + size);
  }
  auto parsed = parse_answer(Bytes(received_).subspan(kSizeBytes), lookup_);
  if (!parsed.parsed() || parsed.value.truncated) {
    return fail(EBADMSG);
  }
  answer_ = std::move(parsed.value);
  state_ = State::kAnswered;
}

}  // namespace carrel::dns
