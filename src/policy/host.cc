#include "policy/host.h"

#include <algorithm>

#include "base/ascii.h"
#include "policy/given.h"
#include "policy/punycode.h"

namespace carrel::policy {
namespace {

Error bad_host(std::string_view text, std::string_view reason, std::string hint = {}) {
  return bad_value({"host", text}, reason, std::move(hint));
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }
bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}
bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// What inet_aton() and web browsers take for a number: "127", "0x7f", "0x".
bool is_number(std::string_view label) {
  return std::all_of(label.begin(), label.end(), is_digit) ||
         (label.starts_with("0x") && std::all_of(label.begin() + 2, label.end(), is_hex));
}

// One label in its canonical form; `whole` is for the errors.
Result<std::string> canonical_label(std::string_view label, std::string_view whole) {
  if (label.empty()) {
    return bad_host(whole, "a part between its dots is empty");
  }
  std::string name = lower(label);
  if (!std::all_of(name.begin(), name.end(), is_ascii)) {
    std::optional<std::string> ascii = to_a_label(name);
    if (!ascii.has_value()) {
      return bad_host(whole, "it has letters that not every program reads in the same way",
                      "write it in lower case, or as its ASCII form, which begins with xn--");
    }
    name = std::move(*ascii);
  }
  if (name.size() > kLongestHostLabel) {
    return bad_host(whole, "a part between its dots is longer than 63 characters");
  }
  if (!std::all_of(name.begin(), name.end(), is_name_character)) {
    return bad_host(whole, "it has characters that no host name has");
  }
  if (name.front() == '-' || name.back() == '-') {
    return bad_host(whole, "a part of it begins or ends with '-'");
  }
  return name;
}

}  // namespace

Result<Host> canonical_host(std::string_view text) {
  constexpr std::size_t kLongestInput = 4 * kLongestHostName;
  if (text.empty() || text.size() > kLongestInput) {
    return bad_host(text, text.empty() ? "it is empty" : "it is longer than 253 characters");
  }
  if (const auto address = IpAddress::parse(text); address.has_value()) {
    return Host(*address);
  }
  if (text.find(':') != std::string_view::npos) {
    const bool zone = text.find('%') != std::string_view::npos;
    return bad_host(text, zone ? "an address with a zone" : "neither a name nor an IPv6 address",
                    zone ? "leave out what follows '%'" : "");
  }
  const std::string_view whole = text;
  if (text.back() == '.') {
    text.remove_suffix(1);
  }
  std::string name;
  std::string label;
  for (;;) {
    const std::size_t dot = text.find('.');
    CARREL_ASSIGN(label, canonical_label(text.substr(0, dot), whole));
    name += name.empty() ? "" : ".";
    name += label;
    if (dot == std::string_view::npos) {
      break;
    }
    text.remove_prefix(dot + 1);
  }
  if (name.size() > kLongestHostName) {
    return bad_host(whole, "it is longer than 253 characters");
  }
  if (is_number(label)) {
    return bad_host(whole, "a name that ends in a number",
                    "an IPv4 address is four decimal numbers without leading zeros");
  }
  Host host;
  host.text_ = std::move(name);
  host.address_.reset();
  return host;
}

std::string endpoint_text(const Host& host, std::uint16_t port) {
  const bool brackets = host.address() != nullptr && !host.address()->is_v4();
  return concat({brackets ? "[" : "", host.text(), brackets ? "]" : "", ":", std::to_string(port)});
}

}  // namespace carrel::policy
