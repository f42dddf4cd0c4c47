#pragma once

#include <cstdint>

namespace carrel::protocol {

// When it is worth while for an end of the stream to ask for the next frame again and again instead
// of sleeping until it comes. To wake a sleeper on a processor that sleeps, too, takes longer than
// a builtin of a shell does; but who asks keeps a processor from others, perhaps from the one who
// is to answer. So it is tried only after a frame that came soon, for a short time, and after it
// was in vain not again for more and more frames. Frames come in bursts, and asking is in vain once
// at the end of each: those that came while it was asked for pay for that. Times are in
// microseconds.
class Eagerness {
 public:
  static constexpr std::uint64_t kLongest = 150;  // to ask
  // To ask for the answer to a request. The one who is to answer keeps off the processor of the one
  // who asks, if there is another.
  static constexpr std::uint64_t kLongestForAnswer = 200;
  static constexpr std::uint64_t kSoon = 500;  // to sleep, where asking may be better

  enum class Way { kSleep, kAsk };

  // How to wait for the next frame.
  Way begin() {
    if (pause_ > 0) {
      --pause_;
      return Way::kSleep;
    }
    return soon_ ? Way::kAsk : Way::kSleep;
  }

  // How long it took to come, how it was waited for, and how long it would have been asked for.
  void note(std::uint64_t took, Way way, std::uint64_t longest = kLongest) {
    soon_ = took < kSoon;
    if (way == Way::kSleep) {
      return;
    }
    if (took < longest) {
      failed_ = 0;
      credit_ += credit_ < kMostCredit ? 1 : 0;
    } else if (credit_ >= kPrice) {
      credit_ -= kPrice;
      soon_ = true;
    } else {
      credit_ = 0;
      failed_ += failed_ < kMostFailed ? 1 : 0;
      pause_ = 1U << failed_;
    }
  }

 private:
  static constexpr unsigned kMostFailed = 10;
  static constexpr unsigned kMostCredit = 8;
  static constexpr unsigned kPrice = 4;  // of asking in vain, in frames that came

  bool soon_ = false;
  unsigned credit_ = 0;  // frames that came, less those that failures were paid with
  unsigned pause_ = 0;   // for how many frames it is not to be tried
  unsigned failed_ = 0;  // how often it was in vain, since it last was not
};

}  // namespace carrel::protocol
