#include "journal/redact.h"

#include <array>
#include <cctype>

#include "journal/json_text.h"

namespace carrel::journal {
namespace {

constexpr std::string_view kRedacted = "[redacted]";
constexpr std::size_t kMostValues = 10'000;

// "X-Auth-Token" and "xAuthToken" as "x auth token", with a space at both ends.
std::string words_of(std::string_view name) {
  std::string words = " ";
  for (std::size_t i = 0; i < name.size(); ++i) {
    const auto c = static_cast<unsigned char>(name[i]);
    if (std::isalnum(c) == 0) {
      words += ' ';
      continue;
    }
    if (std::isupper(c) != 0 && i > 0 && std::islower(static_cast<unsigned char>(name[i - 1]))) {
      words += ' ';
    }
    words += static_cast<char>(std::tolower(c));
  }
  return words + " ";
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// The value behind NAME= or NAME: ends here. A header's goes to the end of the line, anything else
// to the next space, quote or separator.
std::size_t end_of_value(std::string_view text, std::size_t from, char separator) {
  if (from < text.size() && (text[from] == '"' || text[from] == '\'')) {
    const std::size_t end = text.find(text[from], from + 1);
    return end == std::string_view::npos ? text.size() : end + 1;
  }
  const std::size_t end = text.find_first_of(separator == ':' ? "\r\n\"'" : " \t\r\n\"';&|", from);
  return end == std::string_view::npos ? text.size() : end;
}

// Hides what follows secret names in a text that is no JSON: a header, an assignment, an option.
Redacted redact_text(std::string_view text) {
  Redacted done;
  std::size_t copied = 0;
  for (std::size_t at = text.find_first_of(":="); at != std::string_view::npos;
       at = text.find_first_of(":=", at + 1)) {
    std::size_t begin = at;
    while (begin > copied && is_name_character(text[begin - 1])) {
      --begin;
    }
    if (begin == at || !is_secret_name(text.substr(begin, at - begin))) {
      continue;
    }
    std::size_t value = at + 1;
    while (value < text.size() && text[value] == ' ') {
      ++value;
    }
    const std::size_t end = end_of_value(text, value, text[at]);
    if (end == value) {
      continue;
    }
    done.text.append(text, copied, value - copied);
    done.text += kRedacted;
    done.changed = true;
    copied = end;
    at = end == 0 ? 0 : end - 1;
  }
  done.text.append(text.substr(copied));
  return done;
}

enum class Length { kCut, kWhole };

class Redactor {
 public:
  explicit Redactor(Length length) : length_(length) {}

  void redact(Json& value) {
    if (++values_ > kMostValues && length_ == Length::kCut) {
      value = nullptr;
      return;
    }
    if (value.is_string()) {
      Redacted text = redact_text(value.get_ref<const std::string&>());
      changed_ = changed_ || text.changed;
      value = length_ == Length::kCut ? cap(text.text) : std::move(text.text);
    } else if (value.is_array()) {
      for (Json& element : value) {
        redact(element);
      }
    } else if (value.is_object()) {
      for (auto& member : value.items()) {
        if (is_secret_name(member.key()) && !member.value().is_null()) {
          member.value() = kRedacted;
          changed_ = true;
        } else {
          redact(member.value());
        }
      }
    }
  }
  [[nodiscard]] bool changed() const { return changed_; }

 private:
  Length length_;
  std::size_t values_ = 0;
  bool changed_ = false;
};

Redacted redact_as(std::string_view given, Length length) {
  auto json = parse_json(given, "it");
  if (!json.ok() || !json->is_structured()) {
    Redacted text = redact_text(given);
    text.text = length == Length::kCut ? cap(text.text) : std::move(text.text);
    return text;
  }
  Redactor redactor(length);
  redactor.redact(json.value());
  if (length == Length::kWhole && !redactor.changed()) {
    return {std::string(given), false};
  }
  return {to_text(json.value()), redactor.changed()};
}

}  // namespace

bool is_secret_name(std::string_view name) {
  constexpr std::size_t kLongestName = 200;
  if (name.size() > kLongestName) {
    return false;
  }
  const std::string words = words_of(name);
  constexpr std::array<std::string_view, 19> kSecret = {
      " authorization ", " password ",    " passwd ", " passphrase ", " secret ",
      " secrets ",       " token ",       " apikey ", " api key ",    " access key ",
      " private key ",   " credential ",  " cookie ", " bearer ",     " credentials ",
      " set cookie ",    " session key ", " auth ",   " pwd "};
  for (const std::string_view secret : kSecret) {
    if (words.find(secret) != std::string::npos) {
      return true;
    }
  }
  return false;
}

std::string cap(std::string_view text) {
  if (text.size() <= kLongestShown) {
    return std::string(text);
  }
  std::size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  return std::string(text.substr(0, end)) + "… (" + std::to_string(text.size()) + " bytes)";
}

std::string redact(std::string_view json_or_text) {
  return redact_as(json_or_text, Length::kCut).text;
}

Redacted redact_whole(std::string_view json_or_text) {
  return redact_as(json_or_text, Length::kWhole);
}

}  // namespace carrel::journal
