#pragma once

#include <type_traits>

namespace carrel::kernel {

template <typename Value>
long word(Value value) {
  if constexpr (std::is_pointer_v<Value>) {
    return reinterpret_cast<long>(value);
  } else {
    return static_cast<long>(value);
  }
}

// A system call without the C library, whose errno belongs to the parent's thread in a child that
// shares its memory: a value or a negative errno.
template <typename A, typename B = long, typename C = long, typename D = long, typename E = long>
long raw_call(long number, A first, B second = 0, C third = 0, D fourth = 0, E fifth = 0) {
#if defined(__x86_64__)
  register long r10 asm("r10") = word(fourth);
  register long r8 asm("r8") = word(fifth);
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(word(first)), "S"(word(second)), "d"(word(third)), "r"(r10), "r"(r8)
               : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = word(first);
  register long x1 asm("x1") = word(second);
  register long x2 asm("x2") = word(third);
  register long x3 asm("x3") = word(fourth);
  register long x4 asm("x4") = word(fifth);
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
  return x0;
#else
#error "the native sandbox knows x86-64 and aarch64"
#endif
}

}  // namespace carrel::kernel
