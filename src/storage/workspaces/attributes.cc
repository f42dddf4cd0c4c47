#include "storage/workspaces/attributes.h"

#include <linux/limits.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace carrel::storage {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

using Attributes = std::map<std::string, std::string>;

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._-/").find(c) != std::string_view::npos;
}

// CRITICAL: an attribute of an overlay's in a layer would change what a fork sees below it.
bool is_kept(std::string_view name) {
  return name.starts_with("user.") && name.size() > 5 && !name.starts_with("user.overlay.");
}

void add_escaped(std::string& text, std::string_view bytes) {
  for (const char c : bytes) {
    if (is_plain(c)) {
      text += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    text += '%';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
}

std::optional<std::string> unescape(std::string_view text) {
  const auto digit = [&](std::size_t at) {
    return at < text.size() ? std::string_view(kDigits, 16).find(text[at]) : std::string_view::npos;
  };
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!is_plain(text[i])) {
        return std::nullopt;
      }
      bytes += text[i];
      continue;
    }
    const std::size_t high = digit(i + 1);
    const std::size_t low = digit(i + 2);
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return std::nullopt;
    }
    bytes += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return bytes;
}

std::string to_text(const Attributes& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes) {
    text += text.empty() ? "" : ",";
    add_escaped(text, name);
    text += '=';
    add_escaped(text, value);
  }
  return text;
}

std::optional<Attributes> from_text(std::string_view text) {
  Attributes attributes;
  std::size_t bytes = 0;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    const std::size_t sign = one.find('=');
    if (sign == std::string_view::npos) {
      return std::nullopt;
    }
    auto name = unescape(one.substr(0, sign));
    auto value = unescape(one.substr(sign + 1));
    if (!name.has_value() || !value.has_value() || !is_kept(*name) ||
        name->find('\0') != std::string::npos) {
      return std::nullopt;
    }
    bytes += name->size() + value->size();
    attributes.emplace(std::move(*name), std::move(*value));
    text.remove_prefix(one.size() < text.size() ? one.size() + 1 : one.size());
  }
  if (attributes.size() > kMostAttributes || bytes > kMostAttributeBytes) {
    return std::nullopt;
  }
  return attributes;
}

// The names that are there, in order.
std::set<std::string> names_of(int fd) {
  // The kernel has no longer lists than this.
  std::vector<char> list(XATTR_LIST_MAX);
  const ssize_t size = ::flistxattr(fd, list.data(), list.size());
  std::set<std::string> names;
  for (std::string_view rest(list.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
       !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('\0'));
    if (is_kept(name)) {
      names.emplace(name);
    }
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return names;
}

}  // namespace

std::string read_attributes(int fd) {
  // Nearly every file has none.
  if (::flistxattr(fd, nullptr, 0) <= 0) {
    return {};
  }
  Attributes attributes;
  std::size_t bytes = 0;
  std::array<char, kMostAttributeBytes> value{};
  for (const std::string& name : names_of(fd)) {
    const ssize_t size = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
    const std::size_t more = name.size() + (size > 0 ? static_cast<std::size_t>(size) : 0);
    if (size < 0 || bytes + more > kMostAttributeBytes || attributes.size() == kMostAttributes) {
      continue;
    }
    bytes += more;
    attributes.emplace(name, std::string(value.data(), static_cast<std::size_t>(size)));
  }
  return to_text(attributes);
}

Status write_attributes(int fd, const std::string& text, const std::string& path) {
  if (text == read_attributes(fd)) {
    return {};
  }
  const std::optional<Attributes> wanted = from_text(text);
  if (!wanted.has_value() || to_text(*wanted) != text) {
    return Error{Code::kInvalid, 0, "the attributes of '" + path + "' are malformed", {}};
  }
  for (const std::string& name : names_of(fd)) {
    if (!wanted->contains(name)) {
      ::fremovexattr(fd, name.c_str());
    }
  }
  for (const auto& [name, value] : *wanted) {
    if (::fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0 && errno != EOPNOTSUPP) {
      return system_error("set an attribute of '" + path + "'");
    }
  }
  return {};
}

bool are_attributes(std::string_view text) {
  const std::optional<Attributes> attributes = from_text(text);
  return attributes.has_value() && to_text(*attributes) == text;
}

}  // namespace carrel::storage
