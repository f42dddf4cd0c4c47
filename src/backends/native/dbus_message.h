#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace carrel::native {

// As much of D-Bus as it takes to call one method and to read its answer: little-endian messages
// as bytes. Pure functions; nothing is sent here. What is read comes from another process and may
// be anything.

// The largest message that is read. The answers to our calls are a few hundred bytes.
inline constexpr std::size_t kLargestDbusMessage = 64U << 10;
// What has to be there before the size of a message is known.
inline constexpr std::size_t kDbusFixedHeader = 16;

// Writes values with the alignment that D-Bus wants, counted from the beginning of `data`.
class DbusWriter {
 public:
  void byte(std::uint8_t value) { data_.push_back(static_cast<char>(value)); }
  void u32(std::uint32_t value);
  void u64(std::uint64_t value);
  void boolean(std::uint32_t zero_or_one) { u32(zero_or_one); }
  void string(std::string_view value);     // also for an object path
  void signature(std::string_view value);  // at most 255 bytes
  void align(std::size_t boundary) {
    data_.resize((data_.size() + boundary - 1) & ~(boundary - 1));
  }

  // An array: begin with the alignment of its elements, and end with what begin returned. The
  // padding before the first element is not part of its size.
  struct Array {
    std::size_t size_at = 0;
    std::size_t first_at = 0;
  };
  Array begin_array(std::size_t element_alignment);
  void end_array(const Array& array);

  [[nodiscard]] const std::string& data() const { return data_; }

 private:
  std::string data_;
};

struct DbusCall {
  std::string_view destination;  // empty: none, on a connection without a bus
  std::string_view path;
  std::string_view interface;
  std::string_view member;
  std::string_view signature;  // of the body; empty: no body
  std::string_view body;       // marshalled from its own beginning
};

// The bytes of a method call.
std::string encode_call(const DbusCall& call, std::uint32_t serial);

enum class DbusKind : std::uint8_t { kCall = 1, kReturn = 2, kError = 3, kSignal = 4 };

struct DbusMessage {
  DbusKind kind = DbusKind::kSignal;
  std::uint32_t reply_serial = 0;  // 0: answers nothing
  std::string error_name;          // of kError
  std::string text;                // of kError: its first string, if it has one
};

// How many bytes the message that begins with this fixed header has; kInvalid for what is not a
// message, is too large, or has the other byte order.
Result<std::size_t> dbus_message_size(std::string_view header);

// One whole message.
Result<DbusMessage> decode_message(std::string_view data);

}  // namespace carrel::native
