#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace carrel::kernel {

// Netlink messages one after the other, to be sent with one call. The kernel answers the message
// that asks for it, and every one that fails before: so the first answer tells how it went.
class NetlinkBatch {
 public:
  NetlinkBatch() { data_.reserve(kUsual); }

  // Begins a message; `header` is the fixed part that follows netlink's own.
  NetlinkBatch& message(std::uint16_t type, std::uint16_t flags, std::string_view header);
  // Attributes of the last message.
  NetlinkBatch& bytes(std::uint16_t type, std::string_view value);
  NetlinkBatch& text(std::uint16_t type, std::string_view value);  // with a zero at its end
  NetlinkBatch& u8(std::uint16_t type, std::uint8_t value);
  NetlinkBatch& u32(std::uint16_t type, std::uint32_t value);   // as this machine writes it
  NetlinkBatch& be32(std::uint16_t type, std::uint32_t value);  // as the network does
  // An attribute that holds those that follow, until its end.
  NetlinkBatch& begin(std::uint16_t type);
  NetlinkBatch& end();

  [[nodiscard]] std::string take() { return std::move(data_); }

 private:
  static constexpr std::size_t kDeepest = 8;
  static constexpr std::size_t kUsual = 3072;

  std::size_t open_attribute(std::uint16_t type);
  void close_attribute(std::size_t at);
  void set_message_size();

  std::string data_;
  std::size_t message_ = 0;
  std::uint32_t count_ = 0;
  std::size_t nested_[kDeepest] = {};
  std::size_t depth_ = 0;
};

}  // namespace carrel::kernel
