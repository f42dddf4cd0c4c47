#pragma once

// The process that becomes mmdebstrap, between fork and exec.
namespace carrel::storage {

struct BuilderPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  int input = -1;   // becomes 0
  int output = -1;  // becomes 1
  int errors = -1;  // becomes 2
  // Of a user namespace of its own, which the parent gives ids: this end tells that it is there,
  // and waits for one byte. -1: none is made.
  int handshake = -1;
};

// Does not return.
[[noreturn]] void become_builder(const BuilderPlan& plan);

}  // namespace carrel::storage
