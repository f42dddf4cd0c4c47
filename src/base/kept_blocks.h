#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <mutex>
#include <new>

// A few freed blocks of memory, kept for the next one who asks. musl takes a block of more than a
// KiB from the kernel by itself and gives it back when it is freed, so that a daemon that answers
// requests has the same pages mapped, cleared and unmapped all the time. Smaller ones are left to
// musl. Used by the program that is linked with it: kept_blocks.cc.
namespace carrel {

class KeptBlocks {
 public:
  static constexpr std::size_t kLeast = 1U << 10;
  static constexpr std::size_t kMost = 128U << 10;
  static constexpr std::size_t kMostKept = 1U << 20;  // bytes, of all sizes together

  // Whether blocks for so many bytes may be kept.
  static constexpr bool are_kept(std::size_t size) { return size >= kLeast && size <= kMost; }
  // How large a block for so many bytes is made, so that it does for others, too.
  static constexpr std::size_t room_for(std::size_t size) { return size_of(index_of(size)); }

  // A block with room for that, or none.
  void* take(std::size_t size) {
    const std::size_t index = index_of(size);
    const std::lock_guard lock(mutex_);
    Kept* const first = free_[index];
    if (first != nullptr) {
      free_[index] = first->next;
      bytes_ -= size_of(index);
    }
    return first;
  }
  // False: there are enough, and the block is still the caller's. It has room_for(size).
  bool keep(void* block, std::size_t size) {
    const std::size_t index = index_of(size);
    const std::lock_guard lock(mutex_);
    if (bytes_ + size_of(index) > kMostKept) {
      return false;
    }
    free_[index] = new (block) Kept{free_[index]};
    bytes_ += size_of(index);
    return true;
  }

 private:
  struct Kept {
    Kept* next;
  };
  static constexpr std::size_t kSteps = 4;  // sizes from a power of two to the next one
  static constexpr std::size_t kSizes = kSteps * 7 + 1;
  static_assert(kLeast << ((kSizes - 1) / kSteps) == kMost);

  static constexpr std::size_t index_of(std::size_t size) {
    const auto doublings = static_cast<std::size_t>(std::bit_width((size - 1) / kLeast));
    const std::size_t power = doublings == 0 ? 0 : doublings - 1;
    const std::size_t step = (kLeast << power) / kSteps;
    const std::size_t above = size <= kLeast ? 0 : (size - (kLeast << power) + step - 1) / step;
    return power * kSteps + above;
  }
  static constexpr std::size_t size_of(std::size_t index) {
    const std::size_t base = kLeast << (index / kSteps);
    return base + base / kSteps * (index % kSteps);
  }

  std::mutex mutex_;
  std::array<Kept*, kSizes> free_{};
  std::size_t bytes_ = 0;
};

}  // namespace carrel
