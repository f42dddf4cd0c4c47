#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What is said on a machine's serial line before its trunk begins. The machine's first process
// waits for words of the host's and does nothing else meanwhile, so that a machine can be saved at
// that moment, and whoever goes on from what was saved is told the same way as one that has just
// booted. What has to differ between two machines comes with the words: random bytes, the time,
// and what the sandbox is.
namespace carrel::protocol {

enum class AwakeningKind : std::uint8_t {
  kAsk = 1,   // whether it waits; nothing else comes with it
  kWake = 2,  // the machine is somebody's from now on; its terms follow, after their size
};

inline constexpr std::size_t kAwakeningSeed = 64;
struct Awakening {
  AwakeningKind kind{};
  std::uint64_t wall_ns = 0;  // the host's clock
  unsigned char seed[kAwakeningSeed] = {};
};
inline constexpr std::size_t kAwakeningSize = 8 + 8 + kAwakeningSeed;
inline constexpr std::size_t kMaxMachineTerms = 1024;

void write_awakening(const Awakening& words, unsigned char* data);
// Strict: what is not needed is zero.
bool parse_awakening(const unsigned char* data, Awakening& words);

// What the machine answers, both of one size.
inline constexpr std::string_view kStillWaiting = "waiting\n";
inline constexpr std::string_view kAwoken = "awoken!\n";

}  // namespace carrel::protocol
