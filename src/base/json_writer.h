#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace carrel {

// Writes JSON from left to right, without an object in memory: for texts that are written in every
// request. Commas are its own affair; that a key comes before each value of an object, and that
// what is opened is closed, is the caller's. What is not UTF-8 becomes U+FFFD.
class JsonWriter {
 public:
  enum class Characters { kUtf8, kAscii };  // kAscii: all others as \uXXXX

  explicit JsonWriter(Characters characters = Characters::kUtf8) : characters_(characters) {}

  JsonWriter& open_object() { return open('{'); }
  JsonWriter& close_object() { return close('}'); }
  JsonWriter& open_array() { return open('['); }
  JsonWriter& close_array() { return close(']'); }

  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(std::same_as<bool> auto truth) { return word(truth ? "true" : "false"); }
  JsonWriter& value(std::integral auto number)
    requires(!std::same_as<decltype(number), bool>)
  {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return word({digits, static_cast<std::size_t>(end - digits)});
  }
  JsonWriter& null() { return word("null"); }
  // A value that is JSON already.
  JsonWriter& json(std::string_view text) { return word(text); }

  // key() and value() in one.
  template <typename Value>
  JsonWriter& field(std::string_view name, const Value& what) {
    return key(name).value(what);
  }

  [[nodiscard]] const std::string& text() const& { return text_; }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  JsonWriter& open(char bracket) {
    separate();
    text_ += bracket;
    after_value_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    text_ += bracket;
    after_value_ = true;
    return *this;
  }
  JsonWriter& word(std::string_view what) {
    separate();
    text_ += what;
    after_value_ = true;
    return *this;
  }
  void separate() {
    if (after_value_) {
      text_ += ',';
    }
  }
  void quote(std::string_view text);

  std::string text_;
  Characters characters_;
  bool after_value_ = false;
};

}  // namespace carrel
