#include "policy/names.h"

#include <string_view>

namespace carrel::policy {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestHostname = 63;
constexpr std::size_t kLongestLabel = 63;
constexpr std::size_t kLongestUserName = 32;
constexpr std::size_t kLongestPath = 4095;
constexpr std::size_t kLongestImageName = 200;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) { return is_letter(c) || is_digit(c); }

Status check_plain(const Given& given) {
  switch (shape_of(given.text)) {
    case TextShape::kControlBytes:
      return bad_value(given, "contains control characters");
    case TextShape::kInvalidUtf8:
      return bad_value(given, "is not valid UTF-8");
    case TextShape::kPlain:
      break;
  }
  return {};
}

bool is_label(std::string_view label) {
  if (label.empty() || label.size() > kLongestLabel || label.front() == '-' ||
      label.back() == '-') {
    return false;
  }
  for (const char c : label) {
    if (!is_alphanumeric(c) && c != '-') {
      return false;
    }
  }
  return true;
}

bool is_variable_name(std::string_view name) {
  if (name.empty() || is_digit(name.front())) {
    return false;
  }
  for (const char c : name) {
    if (!is_alphanumeric(c) && c != '_') {
      return false;
    }
  }
  return true;
}

}  // namespace

Status check_name(const Given& given) {
  bool good = !given.text.empty() && given.text.size() <= kLongestName &&
              is_alphanumeric(given.text.front());
  for (std::size_t i = 0; good && i < given.text.size(); ++i) {
    const char c = given.text[i];
    good = is_alphanumeric(c) || c == '_' || c == '.' || c == '-';
  }
  if (!good) {
    return bad_value(given, "not a name",
                     "letters, digits, '_', '.' and '-', at most 64, a letter or digit first");
  }
  return {};
}

Status check_image_name(const Given& given) {
  bool good = !given.text.empty() && given.text.size() <= kLongestImageName;
  bool begins = true;  // a part
  for (std::size_t i = 0; good && i < given.text.size(); ++i) {
    const char c = given.text[i];
    if (c == '/' || c == ':') {
      good = !begins;
      begins = true;
    } else {
      good = is_alphanumeric(c) || (!begins && (c == '_' || c == '.' || c == '-'));
      begins = false;
    }
  }
  if (!good || begins) {
    return bad_value(given, "not the name of an image",
                     "like python:3.12-slim; letters, digits, '_', '.', '-' in parts joined by '/' "
                     "or ':'");
  }
  return {};
}

Status check_image_reference(const Given& given) {
  constexpr std::string_view kPin = "@sha256:";
  constexpr std::size_t kDigits = 64;
  const std::size_t at = given.text.find('@');
  CARREL_TRY(check_image_name({given.name, given.text.substr(0, at)}));
  if (at == std::string_view::npos) {
    return {};
  }
  const std::string_view pin = given.text.substr(at);
  if (!pin.starts_with(kPin) || pin.size() != kPin.size() + kDigits ||
      pin.substr(kPin.size()).find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return bad_value(given, "not the digest of an image", "like NAME@sha256: and 64 hex digits");
  }
  return {};
}

Result<std::string> normalize_path(const Given& given) {
  if (given.text.empty() || given.text.front() != '/') {
    return bad_value(given, "must be an absolute path");
  }
  if (given.text.size() > kLongestPath) {
    return bad_value(given, "the path is longer than 4095 bytes");
  }
  CARREL_TRY(check_plain(given));
  std::string path;
  std::string_view rest = given.text;
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the slash
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size());
    if (part == "..") {
      return bad_value(given, "'..' is not allowed in a path");
    }
    if (!part.empty() && part != ".") {
      path += '/';
      path += part;
    }
  }
  return path.empty() ? std::string("/") : path;
}

Status check_hostname(const Given& given) {
  bool good = !given.text.empty() && given.text.size() <= kLongestHostname;
  std::string_view rest = given.text;
  while (good) {
    const std::size_t dot = rest.find('.');
    good = is_label(rest.substr(0, dot));
    if (dot == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(dot + 1);
  }
  if (!good) {
    return bad_value(given, "not a host name", "letters, digits and inner '-', at most 63");
  }
  return {};
}

Status check_user_name(const Given& given) {
  bool good = !given.text.empty() && given.text.size() <= kLongestUserName &&
              (is_lower(given.text.front()) || given.text.front() == '_');
  for (std::size_t i = 0; good && i < given.text.size(); ++i) {
    const char c = given.text[i];
    good = is_lower(c) || is_digit(c) || c == '_' || c == '-';
  }
  if (!good) {
    return bad_value(given, "not a user name",
                     "lower-case letters, digits, '_' and '-', at most 32, a letter first");
  }
  return {};
}

Result<EnvironmentVariable> parse_variable(const Given& given) {
  const std::size_t equals = given.text.find('=');
  const std::string_view name = given.text.substr(0, equals);
  const Given shown{given.name, name};
  if (!is_variable_name(name)) {
    return bad_value(shown, "not a name for a variable",
                     "letters, digits and '_', not a digit first: NAME=VALUE");
  }
  if (equals == std::string_view::npos) {
    return bad_value(shown, "has no value", "write NAME=VALUE; NAME= is an empty value");
  }
  const std::string_view value = given.text.substr(equals + 1);
  if (value.find('\0') != std::string_view::npos) {
    return bad_value(shown, "the value contains a NUL byte");
  }
  if (given.text.size() >= kLongestVariable) {
    return bad_value(shown, "name and value are longer than 128k");
  }
  return EnvironmentVariable{std::string(name), std::string(value)};
}

}  // namespace carrel::policy
