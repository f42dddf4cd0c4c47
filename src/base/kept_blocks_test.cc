#include "base/kept_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace carrel {
namespace {

TEST(KeptBlocks, RoomIsEnoughAndNotMuchMore) {
  for (std::size_t size = KeptBlocks::kLeast; size <= KeptBlocks::kMost; ++size) {
    const std::size_t room = KeptBlocks::room_for(size);
    ASSERT_GE(room, size);
    ASSERT_LE(room, size + size / 4 + 1);
    // Whoever frees it may know either of the two.
    ASSERT_EQ(KeptBlocks::room_for(room), room);
  }
  EXPECT_FALSE(KeptBlocks::are_kept(KeptBlocks::kLeast - 1));
  EXPECT_FALSE(KeptBlocks::are_kept(KeptBlocks::kMost + 1));
}

TEST(KeptBlocks, BlockIsGivenToTheNextWhoHasRoomInIt) {
  KeptBlocks blocks;
  EXPECT_EQ(blocks.take(5000), nullptr);
  void* const block = std::malloc(KeptBlocks::room_for(5000));
  ASSERT_TRUE(blocks.keep(block, 5000));
  EXPECT_EQ(blocks.take(9000), nullptr);
  EXPECT_EQ(blocks.take(4000), nullptr);
  EXPECT_EQ(blocks.take(KeptBlocks::room_for(5000)), block);
  EXPECT_EQ(blocks.take(5000), nullptr) << "it was given away";
  std::free(block);
}

TEST(KeptBlocks, NoMoreIsKeptThanMayBe) {
  KeptBlocks blocks;
  std::vector<void*> kept;
  for (;;) {
    void* const block = std::malloc(KeptBlocks::kMost);
    if (!blocks.keep(block, KeptBlocks::kMost)) {
      std::free(block);
      break;
    }
    kept.push_back(block);
  }
  EXPECT_EQ(kept.size(), KeptBlocks::kMostKept / KeptBlocks::kMost);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    std::free(blocks.take(KeptBlocks::kMost));
  }
  EXPECT_EQ(blocks.take(KeptBlocks::kMost), nullptr);
}

// Its second owner and its third would be given the same memory.
TEST(KeptBlocksDeathTest, BlockThatIsFreedTwiceEndsTheProcess) {
  KeptBlocks blocks;
  void* const first = std::malloc(KeptBlocks::room_for(5000));
  void* const second = std::malloc(KeptBlocks::room_for(5000));
  ASSERT_TRUE(blocks.keep(first, 5000));
  ASSERT_TRUE(blocks.keep(second, 5000));
  EXPECT_DEATH(blocks.keep(first, 5000), "carrel: a block of memory was freed twice");
  EXPECT_DEATH(blocks.keep(second, 5000), "freed twice");
  EXPECT_EQ(blocks.take(5000), second);
  EXPECT_TRUE(blocks.keep(second, 5000)) << "it had an owner in between";
  std::free(blocks.take(5000));
  std::free(blocks.take(5000));
}

TEST(KeptBlocksDeathTest, BlockThatWasWrittenToWhileItWasFreeEndsTheProcess) {
  for (std::size_t at = 0; at < 16; ++at) {
    KeptBlocks blocks;
    void* const block = std::malloc(KeptBlocks::room_for(5000));
    ASSERT_TRUE(blocks.keep(block, 5000));
    static_cast<unsigned char*>(block)[at] ^= 1U;
    EXPECT_DEATH(blocks.take(5000), "written to after it was freed");
    std::free(block);
  }
}

// A block that two had at once would be written to by both.
TEST(KeptBlocks, NobodyGetsTheBlockOfAnother) {
  KeptBlocks blocks;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      for (int i = 0; i < 2000; ++i) {
        const std::size_t size = 1024U * (1U + static_cast<unsigned>(i % 7));
        void* block = blocks.take(size);
        if (block == nullptr) {
          block = std::malloc(KeptBlocks::room_for(size));
        }
        auto* bytes = static_cast<unsigned char*>(block);
        bytes[0] = bytes[size - 1] = static_cast<unsigned char>(number);
        std::this_thread::yield();
        wrong += bytes[0] != number || bytes[size - 1] != number ? 1 : 0;
        if (!blocks.keep(block, size)) {
          std::free(block);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  for (std::size_t size = KeptBlocks::kLeast; size <= KeptBlocks::kMost; size += 256) {
    for (void* block = blocks.take(size); block != nullptr; block = blocks.take(size)) {
      std::free(block);
    }
  }
}

}  // namespace
}  // namespace carrel
