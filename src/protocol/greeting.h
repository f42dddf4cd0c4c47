#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// What the first process of a container says on its standard output before anything else, where
// that and its standard input are all that leads to it. Then it waits for the host's terms, and the
// trunk begins.
namespace carrel::protocol {

inline constexpr std::size_t kBootIdSize = 36;
// About the kernel that the container is on, as far as it can be asked there.
struct Greeting {
  char boot_id[kBootIdSize] = {};  // which is another one for each boot of each kernel
  std::uint32_t landlock = 0;      // the version of its Landlock; 0: it has none

  [[nodiscard]] std::string_view boot() const { return {boot_id, kBootIdSize}; }
};
inline constexpr std::size_t kGreetingSize = 8 + kBootIdSize + 4;

// The most that the host's terms have.
inline constexpr std::size_t kMaxContainedTerms = 32U << 10;

void write_greeting(const Greeting& greeting, unsigned char* data);
// Strict: false where anything differs from what write_greeting() writes.
bool parse_greeting(const unsigned char* data, Greeting& greeting);

}  // namespace carrel::protocol
