#include "kernel/netlink.h"

#include <arpa/inet.h>
#include <linux/netlink.h>

#include <cstring>

namespace carrel::kernel {

namespace {

constexpr std::size_t kAlignment = 4;

void pad(std::string& data) {
  while (data.size() % kAlignment != 0) {
    data.push_back('\0');
  }
}

template <typename T>
std::string_view view_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

NetlinkBatch& NetlinkBatch::message(std::uint16_t type, std::uint16_t flags,
                                    std::string_view header) {
  message_ = data_.size();
  nlmsghdr head{};
  head.nlmsg_type = type;
  head.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  head.nlmsg_seq = ++count_;
  data_.append(view_of(head)).append(header);
  pad(data_);
  set_message_size();
  return *this;
}

std::size_t NetlinkBatch::open_attribute(std::uint16_t type) {
  const std::size_t at = data_.size();
  nlattr head{};
  head.nla_type = type;
  data_.append(view_of(head));
  return at;
}

void NetlinkBatch::close_attribute(std::size_t at) {
  const auto size = static_cast<std::uint16_t>(data_.size() - at);
  std::memcpy(data_.data() + at + offsetof(nlattr, nla_len), &size, sizeof size);
  pad(data_);
  set_message_size();
}

void NetlinkBatch::set_message_size() {
  const auto size = static_cast<std::uint32_t>(data_.size() - message_);
  std::memcpy(data_.data() + message_ + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
}

NetlinkBatch& NetlinkBatch::bytes(std::uint16_t type, std::string_view value) {
  const std::size_t at = open_attribute(type);
  data_.append(value);
  close_attribute(at);
  return *this;
}

NetlinkBatch& NetlinkBatch::text(std::uint16_t type, std::string_view value) {
  const std::size_t at = open_attribute(type);
  data_.append(value).push_back('\0');
  close_attribute(at);
  return *this;
}

NetlinkBatch& NetlinkBatch::u8(std::uint16_t type, std::uint8_t value) {
  return bytes(type, view_of(value));
}

NetlinkBatch& NetlinkBatch::u32(std::uint16_t type, std::uint32_t value) {
  return bytes(type, view_of(value));
}

NetlinkBatch& NetlinkBatch::be32(std::uint16_t type, std::uint32_t value) {
  return u32(type, htonl(value));
}

NetlinkBatch& NetlinkBatch::begin(std::uint16_t type) {
  nested_[depth_++] = open_attribute(static_cast<std::uint16_t>(type | NLA_F_NESTED));
  return *this;
}

NetlinkBatch& NetlinkBatch::end() {
  close_attribute(nested_[--depth_]);
  return *this;
}

}  // namespace carrel::kernel
