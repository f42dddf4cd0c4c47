// Part of the program that is linked with musl only (docs/decisions/0012-musl.md): the copies and
// the comparison that musl has for x86-64 begin slowly or go byte by byte, and most of what this
// program copies and compares is short. The tests give them other names.
#include <stddef.h>
#include <stdint.h>

#ifdef __x86_64__
#include <emmintrin.h>

#ifndef CARREL_BYTES_NAME
#define CARREL_BYTES_NAME(name) name
#endif

// No call of themselves, whatever the compiler takes a loop for.
#ifdef __clang__
#define CARREL_PLAIN
#else
#define CARREL_PLAIN __attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif

enum {
  kWord = 16,
  kBlock = 4 * kWord,
};

typedef uint64_t __attribute__((may_alias, aligned(1))) Eight;
typedef uint32_t __attribute__((may_alias, aligned(1))) Four;
typedef uint16_t __attribute__((may_alias, aligned(1))) Two;

static inline __m128i load(const unsigned char* from) {
  return _mm_loadu_si128((const __m128i*)(const void*)from);
}
static inline void store(unsigned char* to, __m128i word) {
  _mm_storeu_si128((__m128i*)(void*)to, word);
}

// Everything is read before anything is written.
static inline void move_short(unsigned char* to, const unsigned char* from, size_t size) {
  if (size >= 8) {
    const uint64_t first = *(const Eight*)from;
    const uint64_t last = *(const Eight*)(from + size - 8);
    *(Eight*)to = first;
    *(Eight*)(to + size - 8) = last;
  } else if (size >= 4) {
    const uint32_t first = *(const Four*)from;
    const uint32_t last = *(const Four*)(from + size - 4);
    *(Four*)to = first;
    *(Four*)(to + size - 4) = last;
  } else if (size >= 2) {
    const uint16_t first = *(const Two*)from;
    const uint16_t last = *(const Two*)(from + size - 2);
    *(Two*)to = first;
    *(Two*)(to + size - 2) = last;
  } else if (size == 1) {
    *to = *from;
  }
}

// Up to two blocks, from both ends to the middle; everything is read before anything is written.
static inline void move_some(unsigned char* to, const unsigned char* from, size_t size) {
  const __m128i first = load(from);
  const __m128i last = load(from + size - kWord);
  if (size > 2 * kWord) {
    const __m128i second = load(from + kWord);
    const __m128i before = load(from + size - 2 * kWord);
    if (size > kBlock) {
      const __m128i third = load(from + 2 * kWord);
      const __m128i fourth = load(from + 3 * kWord);
      const __m128i fifth = load(from + size - 4 * kWord);
      const __m128i sixth = load(from + size - 3 * kWord);
      store(to + 2 * kWord, third);
      store(to + 3 * kWord, fourth);
      store(to + size - 4 * kWord, fifth);
      store(to + size - 3 * kWord, sixth);
    }
    store(to + kWord, second);
    store(to + size - 2 * kWord, before);
  }
  store(to, first);
  store(to + size - kWord, last);
}

static inline void move_block(unsigned char* to, const unsigned char* from) {
  const __m128i first = load(from);
  const __m128i second = load(from + kWord);
  const __m128i third = load(from + 2 * kWord);
  const __m128i fourth = load(from + 3 * kWord);
  store(to, first);
  store(to + kWord, second);
  store(to + 2 * kWord, third);
  store(to + 3 * kWord, fourth);
}

CARREL_PLAIN void* CARREL_BYTES_NAME(memmove)(void* target, const void* source, size_t size) {
  unsigned char* to = (unsigned char*)target;
  const unsigned char* from = (const unsigned char*)source;
  if (size <= kWord) {
    move_short(to, from, size);
    return target;
  }
  if (size <= 2 * kBlock) {
    move_some(to, from, size);
    return target;
  }
  if ((uintptr_t)to - (uintptr_t)from >= size) {  // forward nothing is written before it is read
    const __m128i last[4] = {load(from + size - 4 * kWord), load(from + size - 3 * kWord),
                             load(from + size - 2 * kWord), load(from + size - kWord)};
    size_t at = 0;
    for (; at + kBlock < size; at += kBlock) {
      move_block(to + at, from + at);
    }
    for (int i = 0; i < 4; ++i) {
      store(to + size - (size_t)(4 - i) * kWord, last[i]);
    }
    return target;
  }
  const __m128i first[4] = {load(from), load(from + kWord), load(from + 2 * kWord),
                            load(from + 3 * kWord)};
  size_t left = size;
  for (; left > kBlock; left -= kBlock) {
    move_block(to + left - kBlock, from + left - kBlock);
  }
  for (int i = 0; i < 4; ++i) {
    store(to + (size_t)i * kWord, first[i]);
  }
  return target;
}

CARREL_PLAIN void* CARREL_BYTES_NAME(memcpy)(void* target, const void* source, size_t size) {
  return CARREL_BYTES_NAME(memmove)(target, source, size);
}

CARREL_PLAIN int CARREL_BYTES_NAME(memcmp)(const void* one, const void* other, size_t size) {
  const unsigned char* a = (const unsigned char*)one;
  const unsigned char* b = (const unsigned char*)other;
  size_t at = 0;
  for (; at + kWord <= size; at += kWord) {
    const unsigned same = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(load(a + at), load(b + at)));
    if (same != 0xffff) {
      at += (size_t)__builtin_ctz(~same);
      return a[at] - b[at];
    }
  }
  for (; at < size; ++at) {
    if (a[at] != b[at]) {
      return a[at] - b[at];
    }
  }
  return 0;
}
#else
typedef int not_empty;
#endif
