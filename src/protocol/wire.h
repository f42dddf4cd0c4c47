#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

// Bounded reading and writing of little-endian fields. Shared by the host and by the guest, so it
// uses nothing of the C++ library that needs code at run time: no heap, no exceptions.
namespace carrel::protocol {

// Reads fields from a buffer. Any read past the end, and any length beyond its limit, makes the
// reader fail for good: the fields read after that are empty, and ok() is false.
class Reader {
 public:
  explicit Reader(std::span<const unsigned char> data) : data_(data) {}

  [[nodiscard]] bool ok() const { return ok_; }
  // True when every byte was consumed and nothing went wrong: trailing bytes are an error too.
  [[nodiscard]] bool finished() const { return ok_ && data_.empty(); }
  void fail() {
    ok_ = false;
    data_ = {};
  }

  std::uint8_t u8() { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }

  // A length-prefixed run of bytes, at most `limit` of them.
  std::string_view bytes(std::size_t limit) {
    std::size_t size = u32();
    if (!ok_ || size > limit || size > data_.size()) {
      fail();
      return {};
    }
    std::string_view view(reinterpret_cast<const char*>(data_.data()), size);
    data_ = data_.subspan(size);
    return view;
  }

  // The same, for text that ends up as a C string: an embedded NUL is a failure.
  std::string_view text(std::size_t limit) {
    std::string_view view = bytes(limit);
    if (view.find('\0') != std::string_view::npos) {
      fail();
      return {};
    }
    return view;
  }

  // All that is left.
  std::string_view rest() {
    std::string_view view(reinterpret_cast<const char*>(data_.data()), data_.size());
    data_ = {};
    return view;
  }

 private:
  std::uint64_t number(std::size_t size) {
    if (!ok_ || data_.size() < size) {
      fail();
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      value |= static_cast<std::uint64_t>(data_[i]) << (8 * i);
    }
    data_ = data_.subspan(size);
    return value;
  }

  std::span<const unsigned char> data_;
  bool ok_ = true;
};

// Writes fields into a buffer that somebody else owns. Writing past the end makes ok() false and
// writes nothing more.
class Writer {
 public:
  explicit Writer(std::span<unsigned char> buffer) : buffer_(buffer) {}

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<const unsigned char> written() const { return buffer_.first(size_); }

  void u8(std::uint8_t value) { number(value, 1); }
  void u16(std::uint16_t value) { number(value, 2); }
  void u32(std::uint32_t value) { number(value, 4); }
  void u64(std::uint64_t value) { number(value, 8); }
  void bytes(std::string_view data) {
    u32(static_cast<std::uint32_t>(data.size()));
    raw(data);
  }
  void raw(std::string_view data) {
    if (!reserve(data.size())) {
      return;
    }
    if (!data.empty()) {
      std::memcpy(buffer_.data() + size_, data.data(), data.size());
    }
    size_ += data.size();
  }

 private:
  bool reserve(std::size_t size) {
    if (!ok_ || buffer_.size() - size_ < size) {
      ok_ = false;
    }
    return ok_;
  }
  void number(std::uint64_t value, std::size_t size) {
    if (!reserve(size)) {
      return;
    }
    for (std::size_t i = 0; i < size; ++i) {
      buffer_[size_ + i] = static_cast<unsigned char>(value >> (8 * i));
    }
    size_ += size;
  }

  std::span<unsigned char> buffer_;
  std::size_t size_ = 0;
  bool ok_ = true;
};

}  // namespace carrel::protocol
