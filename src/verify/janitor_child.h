#pragma once

#include <cstddef>

namespace carrel::verify {

// Everything that a janitor needs to know, computed before it is made.
struct Litter {
  static constexpr std::size_t kMost = 8;
  const char* files[kMost] = {};  // removed in their order; null: no more
  const char* folder = nullptr;   // then this one, which is empty by then
};

// The life of a janitor: waits until the other end of the pipe is closed, by whom and however that
// may happen, and removes what was planted.
[[noreturn]] void be_janitor(int pipe, const Litter& litter);

}  // namespace carrel::verify
