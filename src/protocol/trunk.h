#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/wire.h"

// Several connections on one stream of bytes, for a guest in a machine of its own: what comes out
// of there is one serial line. Both ends of the line use this class. What comes from the other end
// is hostile: a frame that is not one, or more bytes than a channel was granted, breaks the trunk
// for good. Tables of fixed size: nothing that the other end does can make it grow.
namespace carrel::protocol {

inline constexpr std::size_t kTrunkHeader = 8;          // kind, zero, channel, size
inline constexpr std::size_t kTrunkPiece = 16U << 10;   // the most bytes of one frame
inline constexpr std::size_t kTrunkWindow = 64U << 10;  // that a channel may have on their way
// Channels that the host opens, more than a guest has clients and relays; and after them those that
// the machine's first process opens. Each end chooses among its own, so the two never choose the
// same.
inline constexpr std::uint16_t kTrunkInward = 104;
inline constexpr std::uint16_t kTrunkOutward = 88;
inline constexpr std::uint16_t kTrunkChannels = kTrunkInward + kTrunkOutward;
inline constexpr std::size_t kTrunkLabel = 64;  // the most that a machine says about one of its own

enum class TrunkKind : std::uint8_t {
  kHello = 1,   // from the machine: its first process serves the line
  kOpen = 2,    // from the host: a new connection
  kData = 3,    // bytes of a channel
  kCredit = 4,  // so many bytes of the channel were taken; no payload
  kClose =
      5,      // no more bytes of this channel will come, and none are wanted; each end says it once
  kGone = 6,  // from the machine: the guest has ended, and everything that it said is told
  kReach = 7,  // from the machine: a new connection; its payload says to whom, see TrunkLabel
  kEnd = 8,    // of any but the first: no more bytes will come, but they are still wanted
};

// What a connection out of a machine is to be. The host decides whether there is such a thing, and
// closes the channel where there is not.
enum class TrunkPurpose : std::uint8_t {
  kFiles = 1,       // a tree of the host's; one byte: its number
  kConnection = 2,  // out of the sandbox's network: see outward.h
  kNetwork = 3,     // nothing: that network is there
};
struct TrunkLabel {
  TrunkPurpose purpose{};
  std::string_view detail;
};
// False: these bytes are no label.
bool parse_trunk_label(std::string_view payload, TrunkLabel& label);

enum class TrunkEnd : std::uint8_t { kHost, kMachine };

struct TrunkFrame {
  TrunkKind kind{};
  std::uint16_t channel = 0;
  std::uint32_t size = 0;
};

// Reads a header; false when it is not one that this end may hear.
bool parse_trunk_header(const unsigned char* data, TrunkEnd here, TrunkFrame& frame);
void write_trunk_header(const TrunkFrame& frame, unsigned char* data);

class Trunk {
 public:
  // What whoever owns the trunk does for it.
  struct Owner {
    // kOpen: a descriptor that does not block, or -1.
    int (*open)(void* self) = nullptr;
    // kReach: the same. Null: there is nothing that a machine can reach.
    int (*reach)(void* self, const TrunkLabel& label) = nullptr;
    // Writes bytes of channel 0: as write(), how many it took, or -1. Null: write() does.
    long (*write_first)(void* self, int fd, const char* data, std::size_t size) = nullptr;
    void* self = nullptr;
  };

  // How a line is read that has something else around its bytes: as read(). Null: read() does.
  struct LineReader {
    long (*read)(void* self, int fd, char* out, std::size_t size) = nullptr;
    void* self = nullptr;
  };
  // Descriptors that do not block; one for both where the line is a socket or a device.
  struct Line {
    int in = -1;
    int out = -1;
    LineReader reader = {};
  };

  // Channel 0 is `first`, which is open from the beginning.
  void begin(TrunkEnd here, const Line& line, int first, const Owner& owner);
  void begin(TrunkEnd here, int line, int first, const Owner& owner) {
    begin(here, Line{line, line}, first, owner);
  }

  // Carries a connection. False: there are too many, and it is still the caller's.
  bool carry(int fd);
  // The same from a machine, for what the label says. The detail is short: see kTrunkLabel.
  // A descriptor of -1 is closed at once: the label is all there is to say.
  bool carry_out(int fd, const TrunkLabel& label);
  [[nodiscard]] bool can_carry_out() const;
  void say(TrunkKind kind);  // kHello or kGone

  // One round of work: waits for news on the line, on all channels and on `others`, descriptors of
  // the caller's that are looked at for reading; `ready` has a bit for each that has something.
  // False: the line is at its end, or broken.
  bool serve(const int* others, std::size_t count, unsigned& ready, int timeout_ms);

  [[nodiscard]] bool heard_hello() const { return heard_hello_; }
  [[nodiscard]] bool heard_gone() const { return heard_gone_; }
  [[nodiscard]] bool broken() const { return broken_; }
  // Whether nothing is on its way out of this end: to the line, or into it from connections that
  // the host opened.
  [[nodiscard]] bool is_idle() const;
  // Whether nothing that came over the line waits to be taken.
  [[nodiscard]] bool has_delivered() const;
  [[nodiscard]] bool carries(std::uint16_t channel) const { return channels_[channel].used; }

 private:
  struct Channel {
    bool used = false;
    int fd = -1;               // -1: closed here
    bool told_close = false;   // kClose was sent
    bool heard_close = false;  // and came
    bool ended = false;        // nothing more comes from the descriptor
    bool told_end = false;     // kEnd was sent
    bool heard_end = false;    // and came
    bool opens = false;        // kOpen or kReach is still to be sent
    std::uint32_t credit = 0;  // bytes that may be sent
    std::uint32_t owed = 0;    // bytes that were taken, and not yet told
    std::uint32_t start = 0;   // of what came and was not taken: a ring
    std::uint32_t size = 0;
    char ring[kTrunkWindow];  // of one that opens: its label, which comes before all else
  };

  static bool is_over(const Channel& channel) { return channel.told_close && channel.heard_close; }
  void reset(Channel& channel, int fd);
  void close_here(Channel& channel);
  bool hear();
  bool take_frame();
  bool take_data(const char* data, std::size_t size);
  bool take_label(const char* data, std::size_t size);
  void deliver(std::uint16_t number);
  bool send_on(std::uint16_t number);  // false: not all of it was taken yet
  bool fill();                         // something to send, if there is
  bool send_out();                     // false: the line is broken
  bool next_frame(std::uint16_t number);
  void put(TrunkKind kind, std::uint16_t channel, std::uint32_t size);

  TrunkEnd here_ = TrunkEnd::kHost;
  Line line_;
  Owner owner_;
  bool heard_hello_ = false;
  bool heard_gone_ = false;
  bool broken_ = false;
  unsigned char head_[kTrunkHeader] = {};
  std::size_t head_size_ = 0;
  TrunkFrame frame_;         // whose payload comes
  std::size_t awaited_ = 0;  // of it
  char label_[kTrunkLabel] = {};
  std::size_t label_size_ = 0;
  char out_[kTrunkHeader + kTrunkPiece] = {};
  std::size_t out_size_ = 0;
  std::size_t out_start_ = 0;
  TrunkKind word_{};  // kHello or kGone, still to be said
  std::uint16_t turn_ = 0;
  Channel channels_[kTrunkChannels];
};

}  // namespace carrel::protocol
