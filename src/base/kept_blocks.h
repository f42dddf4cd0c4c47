#pragma once

#include <sys/auxv.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

// A few freed blocks of memory, kept for the next one who asks. musl takes a block of more than a
// KiB from the kernel by itself and gives it back when it is freed, so that a daemon that answers
// requests has the same pages mapped, cleared and unmapped all the time. Smaller ones are left to
// musl. Used by the program that is linked with it: kept_blocks.cc.
//
// A kept block carries a mark that only its place in the list and a secret of the process explain.
// A block that is freed while it is kept ends the process, and so does one whose first 16 bytes
// were written to after it was freed. A block that is freed twice with an owner in between is not
// noticed.
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
      if (first->mark != mark_of(first, first->next)) {
        end_process("a block of memory was written to after it was freed");
      }
      free_[index] = first->next;
      first->mark = 0;
      bytes_ -= size_of(index);
    }
    return first;
  }
  // False: there are enough, and the block is still the caller's. It has room_for(size).
  bool keep(void* block, std::size_t size) {
    const std::size_t index = index_of(size);
    const std::lock_guard lock(mutex_);
    if (secret_ == 0) {
      secret_ = make_secret();
    }
    Kept was;
    std::memcpy(&was, block, sizeof was);
    if (was.mark == mark_of(block, was.next)) {
      end_process("a block of memory was freed twice");
    }
    if (bytes_ + size_of(index) > kMostKept) {
      return false;
    }
    free_[index] = new (block) Kept{free_[index], mark_of(block, free_[index])};
    bytes_ += size_of(index);
    return true;
  }

  // For pthread_atfork(): a child has no thread that would unlock what another one of its parent's
  // had locked, so the thread that forks holds the lock while it does.
  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }

 private:
  struct Kept {
    Kept* next;
    std::uintptr_t mark;
  };
  [[nodiscard]] std::uintptr_t mark_of(const void* block, const Kept* next) const {
    return secret_ ^ reinterpret_cast<std::uintptr_t>(block) ^
           std::rotl(reinterpret_cast<std::uintptr_t>(next), 24);
  }
  // From what the kernel gives every process, without a system call. Never 0. It is no part of
  // those random bytes itself: they are the canary of the stack, too.
  static std::uintptr_t make_secret() {
    std::array<std::uint64_t, 2> random{};
    const auto* given = reinterpret_cast<const void*>(::getauxval(AT_RANDOM));
    if (given != nullptr) {
      std::memcpy(random.data(), given, sizeof random);
    }
    std::uint64_t mixed = random[0] ^ std::rotl(random[1], 32);
    mixed = (mixed ^ mixed >> 31U) * 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 29U) * 0xbf58476d1ce4e5b9U;
    return static_cast<std::uintptr_t>(mixed ^ mixed >> 32U) | 1U;
  }
  [[noreturn]] static void end_process(const char* why) {
    for (const char* part : {"carrel: ", why, "\n"}) {
      (void)!::write(STDERR_FILENO, part, std::strlen(part));
    }
    std::abort();
  }

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
  std::uintptr_t secret_ = 0;
};

}  // namespace carrel
