// Part of the program that is linked with musl only: see docs/decisions/0012-musl.md.
#include "base/kept_blocks.h"

#include <malloc.h>
#include <pthread.h>

#include <cstdlib>

namespace {

using carrel::KeptBlocks;

constinit KeptBlocks blocks;

// CRITICAL: without these a process that is forked while another thread frees a block waits for
// ever when it needs one.
__attribute__((constructor(102))) void prepare_for_fork() {
  const int failed =
      ::pthread_atfork([] { blocks.lock_for_fork(); }, [] { blocks.unlock_after_fork(); },
                       [] { blocks.unlock_after_fork(); });
  if (failed != 0) {
    std::abort();
  }
}

void give_back(void* block, std::size_t size) {
  if (!KeptBlocks::are_kept(size) || !blocks.keep(block, size)) {
    std::free(block);
  }
}

}  // namespace

void* operator new(std::size_t size) {
  const bool kept = KeptBlocks::are_kept(size);
  for (;;) {
    void* block = kept ? blocks.take(size) : nullptr;
    if (block == nullptr) {
      block = std::malloc(kept ? KeptBlocks::room_for(size) : size == 0 ? 1 : size);
    }
    if (block != nullptr) {
      return block;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) {
      throw std::bad_alloc();
    }
    handler();
  }
}

void operator delete(void* block) noexcept {
  if (block != nullptr) {
    give_back(block, ::malloc_usable_size(block));
  }
}

void operator delete(void* block, std::size_t size) noexcept {
  if (block != nullptr) {
    give_back(block, size);
  }
}
