#pragma once

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace carrel::guest {

// The newest bytes of a stream, with offsets from its beginning. Memory is taken when the first
// byte comes and given back by reset(). A stream that is a few bytes long costs a few bytes: only
// what does not fit there gets the whole ring. Not to be copied once it has bytes.
class Ring {
 public:
  static constexpr std::size_t kCapacity = 256U << 10;
  static constexpr std::size_t kFew = 2048;

  [[nodiscard]] std::uint64_t end() const { return end_; }
  [[nodiscard]] std::uint64_t start() const { return end_ < kCapacity ? 0 : end_ - kCapacity; }

  // How many bytes fit without dropping anything at or after `keep`.
  [[nodiscard]] std::size_t room(std::uint64_t keep) const {
    return kCapacity - static_cast<std::size_t>(end_ - keep);
  }

  // A contiguous place for up to `wanted` new bytes; empty when there is no memory.
  char* place(std::size_t wanted, std::size_t& size) {
    size = 0;
    if (data_ == nullptr && !grow()) {
      return nullptr;
    }
    std::size_t at = static_cast<std::size_t>(end_ % kCapacity);
    size = kCapacity - at < wanted ? kCapacity - at : wanted;
    return data_ + at;
  }
  void added(std::size_t size) { end_ += size; }

  // Whether the stream is still a few bytes, which are better added than placed.
  [[nodiscard]] bool is_short() const { return data_ == nullptr; }

  // Adds to a stream that is short, at most kFew bytes. False when there is no memory.
  bool add(std::string_view bytes) {
    std::size_t had = static_cast<std::size_t>(end_);
    std::size_t size = had + bytes.size();
    if (size > kFew) {
      if (!grow()) {
        return false;
      }
      memcpy(data_ + had, bytes.data(), bytes.size());
    } else {
      if (!hold_few(size)) {
        return false;
      }
      memcpy(few_ + had, bytes.data(), bytes.size());
    }
    end_ = size;
    return true;
  }

  // The bytes from `offset` on that lie together; at most `limit`. `offset` is not before start().
  [[nodiscard]] std::string_view from(std::uint64_t offset, std::size_t limit) const {
    const char* data = data_ == nullptr ? few_ : data_;
    std::size_t at = static_cast<std::size_t>(offset % kCapacity);
    std::size_t size = static_cast<std::size_t>(end_ - offset);
    size = size < kCapacity - at ? size : kCapacity - at;
    return {data + at, size < limit ? size : limit};
  }

  void reset() {
    if (data_ != nullptr) {
      munmap(data_, kCapacity);
    }
    forget_few();
    data_ = nullptr;
    end_ = 0;
  }

 private:
  static std::size_t few_capacity(std::size_t size) {
    return size <= sizeof near_ ? sizeof near_ : (size + 511) / 512 * 512;
  }

  // Makes room for that many bytes in all, and keeps those that are there.
  bool hold_few(std::size_t size) {
    std::size_t had = static_cast<std::size_t>(end_);
    if (few_ != nullptr && few_capacity(size) == few_capacity(had)) {
      return true;
    }
    bool near = size <= sizeof near_;
    char* grown = near ? near_ : static_cast<char*>(malloc(few_capacity(size)));
    if (grown == nullptr) {
      return false;
    }
    if (had > 0) {
      memcpy(grown, few_, had);
      forget_few();
    }
    few_ = grown;
    return true;
  }

  bool grow() {
    void* memory =
        mmap(nullptr, kCapacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return false;
    }
    data_ = static_cast<char*>(memory);
    if (few_ != nullptr) {
      memcpy(data_, few_, static_cast<std::size_t>(end_));
      forget_few();
    }
    return true;
  }

  void forget_few() {
    if (few_ != near_) {
      free(few_);
    }
    few_ = nullptr;
  }

  char* data_ = nullptr;
  char* few_ = nullptr;
  char near_[128] = {};
  std::uint64_t end_ = 0;
};

}  // namespace carrel::guest
