#include "dns/name.h"

#include <algorithm>

namespace carrel::dns {
namespace {

constexpr std::size_t kLongestWireName = 255;
constexpr std::uint8_t kPointer = 0xc0;

bool is_name_byte(std::uint8_t byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte == '-' || byte == '_';
}

void append_label(std::string& text, Bytes label) {
  text += text.empty() ? "" : ".";
  for (std::uint8_t byte : label) {
    byte = byte >= 'A' && byte <= 'Z' ? static_cast<std::uint8_t>(byte - 'A' + 'a') : byte;
    if (is_name_byte(byte)) {
      text += static_cast<char>(byte);
    } else {
      text += '\\';
      text += static_cast<char>('0' + byte / 100);
      text += static_cast<char>('0' + byte / 10 % 10);
      text += static_cast<char>('0' + byte % 10);
    }
  }
}

}  // namespace

std::optional<Name> read_name(Bytes message, std::size_t start, Pointers pointers) {
  Name name;
  std::size_t at = start;
  std::size_t size = 1;  // with the byte that ends it
  bool jumped = false;
  // A pointer leads to before the run of labels that it ends: so this comes to an end.
  std::size_t run = start;
  while (at < message.size()) {
    const std::uint8_t length = message[at];
    if ((length & kPointer) == kPointer && pointers == Pointers::kFollowed) {
      if (at + 1 >= message.size()) {
        return std::nullopt;
      }
      const std::size_t target = (static_cast<std::size_t>(length & 0x3fU) << 8U) | message[at + 1];
      if (target >= run) {
        return std::nullopt;
      }
      name.end = jumped ? name.end : at + 2;
      jumped = true;
      at = run = target;
      continue;
    }
    if ((length & kPointer) != 0) {
      return std::nullopt;
    }
    if (length == 0) {
      name.end = jumped ? name.end : at + 1;
      return name;
    }
    size += length + std::size_t{1};
    if (size > kLongestWireName || at + 1 + length > message.size()) {
      return std::nullopt;
    }
    append_label(name.text, message.subspan(at + 1, length));
    at += length + std::size_t{1};
  }
  return std::nullopt;
}

std::optional<policy::Host> host_of(const Name& name) {
  // An escape has a backslash, which no host name has.
  auto host = policy::canonical_host(name.text);
  if (!host.ok() || !host.value().is_name()) {
    return std::nullopt;
  }
  return std::move(host.value());
}

void append_name(std::vector<std::uint8_t>& message, const policy::Host& name) {
  std::string_view rest = name.text();
  while (!rest.empty()) {
    const std::string_view label = rest.substr(0, rest.find('.'));
    message.push_back(static_cast<std::uint8_t>(label.size()));
    message.insert(message.end(), label.begin(), label.end());
    rest.remove_prefix(std::min(label.size() + 1, rest.size()));
  }
  message.push_back(0);
}

void append_u16(std::vector<std::uint8_t>& message, std::size_t number) {
  message.push_back(static_cast<std::uint8_t>(number >> 8U));
  message.push_back(static_cast<std::uint8_t>(number));
}

}  // namespace carrel::dns
