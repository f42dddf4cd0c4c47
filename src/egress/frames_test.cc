#include "egress/frames.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace carrel::egress {
namespace {

TEST(Frames, AreAsLargeAsAskedForAndNobodyElses) {
  constexpr std::size_t kLengths[] = {1, 255, 256, 257, 4096, 20'000, 32'768, 32'769, 200'000};
  std::vector<std::pair<unsigned char*, std::size_t>> held;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t size : kLengths) {
      auto* frame = static_cast<unsigned char*>(take_frame(size));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(frame) % alignof(std::max_align_t), 0U);
      std::memset(frame, static_cast<int>(held.size()), size);
      held.emplace_back(frame, size);
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      EXPECT_EQ(held[i].first[0], i);
      EXPECT_EQ(held[i].first[held[i].second - 1], i);
      give_frame(held[i].first);
    }
    held.clear();
  }
}

}  // namespace
}  // namespace carrel::egress
