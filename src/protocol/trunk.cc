#include "protocol/trunk.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/outward.h"

namespace carrel::protocol {

namespace {

constexpr std::size_t kMostOthers = 8;

// Whether nobody is at the other side any more, who could have ended only what he says.
bool has_hung_up(int fd) {
  struct pollfd look{fd, 0, 0};
  return poll(&look, 1, 0) > 0 && (look.revents & (POLLHUP | POLLERR)) != 0;
}

std::uint32_t smaller(std::size_t a, std::size_t b) {
  return static_cast<std::uint32_t>(a < b ? a : b);
}

}  // namespace

bool parse_trunk_header(const unsigned char* data, TrunkEnd here, TrunkFrame& frame) {
  Reader reader({data, kTrunkHeader});
  const std::uint8_t kind = reader.u8();
  const std::uint8_t zero = reader.u8();
  frame.kind = static_cast<TrunkKind>(kind);
  frame.channel = reader.u16();
  frame.size = reader.u32();
  if (zero != 0 || frame.channel >= kTrunkChannels) {
    return false;
  }
  switch (frame.kind) {
    case TrunkKind::kHello:
    case TrunkKind::kGone:
      return here == TrunkEnd::kHost && frame.channel == 0 && frame.size == 0;
    case TrunkKind::kOpen:
      return here == TrunkEnd::kMachine && frame.channel != 0 && frame.channel < kTrunkInward &&
             frame.size == 0;
    case TrunkKind::kReach:
      return here == TrunkEnd::kHost && frame.channel >= kTrunkInward && frame.size > 0 &&
             frame.size <= kTrunkLabel;
    case TrunkKind::kData:
      return frame.size > 0 && frame.size <= kTrunkPiece;
    case TrunkKind::kCredit:
      return frame.size > 0 && frame.size <= kTrunkWindow;
    case TrunkKind::kClose:
      return frame.size == 0;
    case TrunkKind::kEnd:
      return frame.size == 0 && frame.channel != 0;
  }
  return false;
}

bool parse_trunk_label(std::string_view payload, TrunkLabel& label) {
  if (payload.empty() || payload.size() > kTrunkLabel) {
    return false;
  }
  label.purpose = static_cast<TrunkPurpose>(payload[0]);
  label.detail = {payload.data() + 1, payload.size() - 1};
  switch (label.purpose) {
    case TrunkPurpose::kFiles:
      return label.detail.size() == 1;
    case TrunkPurpose::kConnection: {
      Outward outward;
      return parse_outward(label.detail, outward);
    }
    case TrunkPurpose::kNetwork:
      return label.detail.empty();
  }
  return false;
}

void write_trunk_header(const TrunkFrame& frame, unsigned char* data) {
  Writer writer({data, kTrunkHeader});
  writer.u8(static_cast<std::uint8_t>(frame.kind));
  writer.u8(0);
  writer.u16(frame.channel);
  writer.u32(frame.size);
}

void Trunk::begin(TrunkEnd here, const Line& line, int first, const Owner& owner) {
  here_ = here;
  line_ = line;
  owner_ = owner;
  reset(channels_[0], first);
}

void Trunk::reset(Channel& channel, int fd) {
  channel.used = true;
  channel.fd = fd;
  channel.told_close = channel.heard_close = channel.opens = false;
  channel.told_end = channel.heard_end = false;
  channel.ended = fd < 0;
  channel.credit = kTrunkWindow;
  channel.owed = channel.start = channel.size = 0;
}

bool Trunk::carry(int fd) {
  for (std::uint16_t i = 1; i < kTrunkInward; ++i) {
    if (!channels_[i].used) {
      reset(channels_[i], fd);
      channels_[i].opens = true;
      return true;
    }
  }
  return false;
}

bool Trunk::can_carry_out() const {
  for (std::uint16_t i = kTrunkInward; i < kTrunkChannels; ++i) {
    if (!channels_[i].used) {
      return true;
    }
  }
  return false;
}

bool Trunk::carry_out(int fd, const TrunkLabel& label) {
  for (std::uint16_t i = kTrunkInward; i < kTrunkChannels && label.detail.size() < kTrunkLabel;
       ++i) {
    Channel& channel = channels_[i];
    if (!channel.used) {
      reset(channel, fd);
      channel.opens = true;
      channel.ring[0] = static_cast<char>(label.purpose);
      memcpy(channel.ring + 1, label.detail.data(), label.detail.size());
      channel.size = static_cast<std::uint32_t>(label.detail.size() + 1);
      return true;
    }
  }
  return false;
}

void Trunk::say(TrunkKind kind) { word_ = kind; }

// What came and was not taken is nobody's any more.
void Trunk::close_here(Channel& channel) {
  if (channel.fd >= 0) {
    close(channel.fd);
  }
  channel.fd = -1;
  channel.ended = true;
  channel.size = 0;
}

bool Trunk::is_idle() const {
  if (out_size_ != 0 || word_ != TrunkKind{}) {
    return false;
  }
  for (std::uint16_t i = 0; i < kTrunkInward; ++i) {
    const Channel& channel = channels_[i];
    if (channel.used && !(channel.ended && channel.told_close)) {
      return false;
    }
  }
  return true;
}

bool Trunk::has_delivered() const {
  for (const Channel& channel : channels_) {
    if (channel.used && channel.fd >= 0 && channel.size > 0 && !channel.opens) {
      return false;
    }
  }
  return true;
}

bool Trunk::send_on(std::uint16_t number) {
  Channel& channel = channels_[number];
  while (channel.fd >= 0 && channel.size > 0 && !channel.opens) {
    const std::uint32_t piece = smaller(channel.size, kTrunkWindow - channel.start);
    const char* const data = channel.ring + channel.start;
    const long n = number == 0 && owner_.write_first != nullptr
                       ? owner_.write_first(owner_.self, channel.fd, data, piece)
                       : send(channel.fd, data, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && errno == EAGAIN) {
      return false;
    }
    if (n <= 0) {
      close_here(channel);
      return true;
    }
    channel.start =
        static_cast<std::uint32_t>((channel.start + static_cast<std::size_t>(n)) % kTrunkWindow);
    channel.size -= static_cast<std::uint32_t>(n);
    channel.owed += static_cast<std::uint32_t>(n);
  }
  return true;
}

// Hands over what came, as far as it is taken, and that no more comes.
void Trunk::deliver(std::uint16_t number) {
  Channel& channel = channels_[number];
  if (!send_on(number) || channel.fd < 0) {
    return;
  }
  const bool left = channel.ended && has_hung_up(channel.fd);
  if (channel.heard_close || (channel.heard_end && channel.ended) || left) {
    close_here(channel);
  } else if (channel.heard_end) {
    shutdown(channel.fd, SHUT_WR);
  }
}

// A connection that the machine asks for: what it says comes whole before anything is done.
bool Trunk::take_label(const char* data, std::size_t size) {
  memcpy(label_ + label_size_, data, size);
  label_size_ += size;
  if (label_size_ < frame_.size) {
    return true;
  }
  TrunkLabel label;
  if (!parse_trunk_label({label_, label_size_}, label)) {
    return false;
  }
  label_size_ = 0;
  reset(channels_[frame_.channel], owner_.reach != nullptr ? owner_.reach(owner_.self, label) : -1);
  return true;
}

bool Trunk::take_data(const char* data, std::size_t size) {
  Channel& channel = channels_[frame_.channel];
  if (channel.fd < 0) {
    return true;  // it is closed here, and the other end will hear of it
  }
  // CRITICAL: the other end may have no more on its way than it was granted.
  if (size > kTrunkWindow - channel.size - channel.owed) {
    return false;
  }
  const std::size_t end = (channel.start + channel.size) % kTrunkWindow;
  const std::size_t whole = smaller(size, kTrunkWindow - end);
  memcpy(channel.ring + end, data, whole);
  memcpy(channel.ring, data + whole, size - whole);
  channel.size += static_cast<std::uint32_t>(size);
  return true;
}

// A header is whole.
bool Trunk::take_frame() {
  if (!parse_trunk_header(head_, here_, frame_)) {
    return false;
  }
  Channel& channel = channels_[frame_.channel];
  switch (frame_.kind) {
    case TrunkKind::kHello:
      heard_hello_ = true;
      return true;
    case TrunkKind::kGone:
      heard_gone_ = true;
      return true;
    case TrunkKind::kOpen:
      if (channel.used && !is_over(channel)) {
        return false;
      }
      reset(channel, owner_.open != nullptr ? owner_.open(owner_.self) : -1);
      return true;
    case TrunkKind::kReach:
      awaited_ = frame_.size;
      return !channel.used || is_over(channel);
    case TrunkKind::kData:
      awaited_ = frame_.size;
      return channel.used && !channel.heard_close && !channel.heard_end;
    case TrunkKind::kCredit:
      if (!channel.used || channel.heard_close || frame_.size > kTrunkWindow - channel.credit) {
        return false;
      }
      channel.credit += frame_.size;
      return true;
    case TrunkKind::kClose:
      if (!channel.used || channel.heard_close || channel.opens) {
        return false;
      }
      channel.heard_close = true;
      channel.ended = true;
      deliver(frame_.channel);
      return true;
    case TrunkKind::kEnd:
      if (!channel.used || channel.heard_close || channel.heard_end || channel.opens) {
        return false;
      }
      channel.heard_end = true;
      deliver(frame_.channel);
      return true;
  }
  return false;
}

// Reads what there is on the line. False: it is at its end, or what came is no frame.
bool Trunk::hear() {
  char piece[kTrunkPiece];
  for (int rounds = 0; rounds < 8; ++rounds) {
    const LineReader& reader = line_.reader;
    const long n = reader.read != nullptr ? reader.read(reader.self, line_.in, piece, sizeof piece)
                                          : read(line_.in, piece, sizeof piece);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      return true;
    }
    if (n <= 0) {
      return false;
    }
    const auto size = static_cast<std::size_t>(n);
    for (std::size_t at = 0; at < size;) {
      if (awaited_ > 0) {
        const std::uint32_t part = smaller(awaited_, size - at);
        const bool label = frame_.kind == TrunkKind::kReach;
        if (!(label ? take_label(piece + at, part) : take_data(piece + at, part))) {
          broken_ = true;
          return false;
        }
        at += part;
        awaited_ -= part;
        if (awaited_ == 0 && !label) {
          deliver(frame_.channel);
        }
        continue;
      }
      head_[head_size_++] = static_cast<unsigned char>(piece[at++]);
      if (head_size_ == kTrunkHeader) {
        head_size_ = 0;
        if (!take_frame()) {
          broken_ = true;
          return false;
        }
      }
    }
    if (size < sizeof piece) {
      return true;
    }
  }
  return true;
}

void Trunk::put(TrunkKind kind, std::uint16_t channel, std::uint32_t size) {
  write_trunk_header({kind, channel, size}, reinterpret_cast<unsigned char*>(out_));
  out_start_ = 0;
  out_size_ = kTrunkHeader;
}

// Makes the next frame of a channel, if it has one to send.
bool Trunk::next_frame(std::uint16_t number) {
  Channel& channel = channels_[number];
  if (!channel.used) {
    return false;
  }
  if (channel.opens) {
    channel.opens = false;
    put(number < kTrunkInward ? TrunkKind::kOpen : TrunkKind::kReach, number, channel.size);
    memcpy(out_ + kTrunkHeader, channel.ring, channel.size);
    out_size_ += channel.size;
    channel.size = 0;
    return true;
  }
  if (channel.owed > 0 && !channel.heard_close &&
      (channel.owed >= kTrunkPiece || channel.size == 0)) {
    put(TrunkKind::kCredit, number, channel.owed);
    channel.owed = 0;
    return true;
  }
  if (!channel.ended && channel.credit > 0) {
    const ssize_t n =
        recv(channel.fd, out_ + kTrunkHeader, smaller(channel.credit, kTrunkPiece), MSG_DONTWAIT);
    if (n > 0) {
      put(TrunkKind::kData, number, static_cast<std::uint32_t>(n));
      out_size_ += static_cast<std::size_t>(n);
      channel.credit -= static_cast<std::uint32_t>(n);
      return true;
    }
    if (n == 0 && number != 0 && !channel.heard_end && !has_hung_up(channel.fd)) {
      channel.ended = true;
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      close_here(channel);
    }
  }
  if (channel.ended && channel.fd >= 0 && !channel.heard_close && !channel.told_end) {
    channel.told_end = true;
    put(TrunkKind::kEnd, number, 0);
    return true;
  }
  // What came is handed over first: whoever has heard both ends may open the channel anew.
  if (channel.fd < 0 && !channel.told_close) {
    channel.told_close = true;
    put(TrunkKind::kClose, number, 0);
    return true;
  }
  channel.used = !is_over(channel);
  return false;
}

bool Trunk::fill() {
  if (word_ == TrunkKind::kHello) {
    put(word_, 0, 0);
    word_ = {};
    return true;
  }
  for (std::uint16_t i = 0; i < kTrunkChannels; ++i) {
    const auto number = static_cast<std::uint16_t>((turn_ + i) % kTrunkChannels);
    if (next_frame(number)) {
      turn_ = static_cast<std::uint16_t>((number + 1) % kTrunkChannels);
      return true;
    }
  }
  if (word_ == TrunkKind::kGone) {
    put(word_, 0, 0);
    word_ = {};
    return true;
  }
  return false;
}

bool Trunk::send_out() {
  for (int rounds = 0; rounds < 32; ++rounds) {
    if (out_size_ == 0 && !fill()) {
      return true;
    }
    const ssize_t n = write(line_.out, out_ + out_start_, out_size_ - out_start_);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      return true;
    }
    if (n <= 0) {
      return false;
    }
    out_start_ += static_cast<std::size_t>(n);
    if (out_start_ == out_size_) {
      out_size_ = out_start_ = 0;
    }
  }
  return true;
}

bool Trunk::serve(const int* others, std::size_t count, unsigned& ready, int timeout_ms) {
  ready = 0;
  struct pollfd watched[2 + kTrunkChannels + kMostOthers] = {};
  if (!send_out()) {
    return false;
  }
  std::size_t used = 0;
  const bool waits = out_size_ > 0;
  const bool two_ways = line_.in != line_.out;
  watched[used++] = {line_.in, static_cast<short>(POLLIN | (waits && !two_ways ? POLLOUT : 0)), 0};
  watched[used++] = {waits && two_ways ? line_.out : -1, POLLOUT, 0};
  const std::size_t first_channel = used;
  std::uint16_t numbers[kTrunkChannels];
  std::size_t channels = 0;
  for (std::uint16_t i = 0; i < kTrunkChannels; ++i) {
    const Channel& channel = channels_[i];
    if (!channel.used || channel.fd < 0) {
      continue;
    }
    // Who has no credit is not read from; its end is noticed when it has.
    const bool reads = !channel.ended && channel.credit > 0 && out_size_ == 0;
    const bool writes = channel.size > 0 && !channel.opens;
    // Who has said everything may leave without having heard everything: poll() tells that unasked.
    if (reads || writes || channel.ended) {
      numbers[channels++] = i;
      watched[used++] = {channel.fd,
                         static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0};
    }
  }
  const std::size_t first_other = used;
  for (std::size_t i = 0; i < count && i < kMostOthers; ++i) {
    watched[used++] = {others[i], POLLIN, 0};
  }
  if (poll(watched, used, timeout_ms) < 0) {
    return errno == EINTR;
  }
  for (std::size_t i = 0; i < channels; ++i) {
    if ((watched[first_channel + i].revents & (POLLOUT | POLLERR | POLLHUP)) != 0) {
      deliver(numbers[i]);
    }
  }
  for (std::size_t i = first_other; i < used; ++i) {
    ready |= watched[i].revents != 0 ? 1U << (i - first_other) : 0U;
  }
  if ((watched[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !hear()) {
    return false;
  }
  return send_out();
}

}  // namespace carrel::protocol
