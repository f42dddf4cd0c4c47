#pragma once

#include <cstddef>

namespace carrel::egress {

// Memory for coroutines, of one thread. A connection makes and ends dozens of them, and the C
// library would ask the kernel for the pages of many of those, and give them back, each time: some
// of each size are kept.
void* take_frame(std::size_t size);
void give_frame(void* frame) noexcept;

}  // namespace carrel::egress
