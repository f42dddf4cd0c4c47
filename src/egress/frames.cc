#include "egress/frames.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <new>

namespace carrel::egress {

namespace {

constexpr std::size_t kSmallest = 256;
constexpr std::size_t kSizes = 8;  // the largest is 32 KiB
#ifdef CARREL_SANITIZED
constexpr std::size_t kMostKept = 0;  // so that what is used after its end is found
#else
constexpr std::size_t kMostKept = 16;  // of each size
#endif

// Before each frame; a free one is in a list.
struct alignas(std::max_align_t) Head {
  std::size_t size_class = kSizes;
  Head* next = nullptr;
};

struct Kept {
  Head* first = nullptr;
  std::size_t count = 0;
};

std::array<Kept, kSizes> g_kept;

std::size_t size_class_of(std::size_t size) {
  return size <= kSmallest ? 0 : static_cast<std::size_t>(std::bit_width((size - 1) / kSmallest));
}

}  // namespace

void* take_frame(std::size_t size) {
  const std::size_t size_class = size_class_of(size);
  if (size_class < kSizes && g_kept[size_class].first != nullptr) {
    Kept& kept = g_kept[size_class];
    Head* head = kept.first;
    kept.first = head->next;
    --kept.count;
    return head + 1;
  }
  const std::size_t room = size_class < kSizes ? kSmallest << size_class : size;
  void* memory = std::malloc(sizeof(Head) + room);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return new (memory) Head{size_class, nullptr} + 1;
}

void give_frame(void* frame) noexcept {
  Head* head = static_cast<Head*>(frame) - 1;
  if (head->size_class < kSizes && g_kept[head->size_class].count < kMostKept) {
    Kept& kept = g_kept[head->size_class];
    head->next = kept.first;
    kept.first = head;
    ++kept.count;
    return;
  }
  std::free(head);
}

}  // namespace carrel::egress
