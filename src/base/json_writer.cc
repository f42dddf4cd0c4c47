#include "base/json_writer.h"

#include <algorithm>

#include "base/utf8.h"

namespace carrel {

namespace {

constexpr char kHex[] = "0123456789abcdef";

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\';
}

void append_unit(std::string& to, unsigned unit) {
  to += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) {
    to += kHex[(unit >> static_cast<unsigned>(shift)) & 0xfU];
  }
}

void append_escaped(std::string& to, char c) {
  switch (c) {
    case '"':
    case '\\':
      (to += '\\') += c;
      return;
    case '\b':
      to += "\\b";
      return;
    case '\f':
      to += "\\f";
      return;
    case '\n':
      to += "\\n";
      return;
    case '\r':
      to += "\\r";
      return;
    case '\t':
      to += "\\t";
      return;
    default:
      append_unit(to, static_cast<unsigned char>(c));
  }
}

// The character at the beginning of valid UTF-8, which becomes shorter by it.
unsigned take_character(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  unsigned character = size == 1 ? first : first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    character = (character << 6U) | (static_cast<unsigned char>(text[i]) & 0x3fU);
  }
  text.remove_prefix(size);
  return character;
}

void append_ascii(std::string& to, std::string_view text) {
  while (!text.empty()) {
    if (static_cast<unsigned char>(text.front()) < 0x7f) {
      is_plain(text.front()) ? void(to += text.front()) : append_escaped(to, text.front());
      text.remove_prefix(1);
      continue;
    }
    const unsigned character = take_character(text);
    if (character < 0x10000) {
      append_unit(to, character);
    } else {
      append_unit(to, 0xd800U + ((character - 0x10000U) >> 10U));
      append_unit(to, 0xdc00U + ((character - 0x10000U) & 0x3ffU));
    }
  }
}

void append_utf8(std::string& to, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    is_plain(c) || byte >= 0x7f ? void(to += c) : append_escaped(to, c);
  }
}

}  // namespace

void JsonWriter::quote(std::string_view text) {
  text_ += '"';
  if (std::all_of(text.begin(), text.end(), is_plain)) {
    text_ += text;
  } else {
    const std::string valid = valid_utf8(text) ? std::string() : replace_invalid_utf8(text);
    const std::string_view clean = valid.empty() ? text : std::string_view(valid);
    characters_ == Characters::kAscii ? append_ascii(text_, clean) : append_utf8(text_, clean);
  }
  text_ += '"';
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += ':';
  after_value_ = false;
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  separate();
  quote(text);
  after_value_ = true;
  return *this;
}

}  // namespace carrel
