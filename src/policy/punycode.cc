#include "policy/punycode.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/utf8.h"

namespace carrel::policy {
namespace {

struct Range {
  char32_t first;
  char32_t last;
};

// Lower-case, already composed and the same under IDNA 2003, 2008 and UTS 46. Left out are ß and ς,
// on which these disagree, marks that combine, and scripts with rules about direction or context.
constexpr std::array kLetters = {
    Range{0x00e0, 0x00f6}, Range{0x00f8, 0x00ff},  // Latin-1
    Range{0x03ac, 0x03c1}, Range{0x03c3, 0x03ce},  // Greek
    Range{0x0430, 0x045f},                         // Cyrillic
    Range{0x3041, 0x3096}, Range{0x30a1, 0x30fa},  // Hiragana, Katakana
    Range{0x30fc, 0x30fc},                         // the mark of a long vowel
    Range{0x4e00, 0x9fff},                         // Han
    Range{0xac00, 0xd7a3},                         // Hangul
};

// Latin Extended-A has capital and small letters in turns.
bool is_small_extended_latin(char32_t c) {
  if (c == 0x133 || c == 0x140 || c == 0x149 || c == 0x17f) {
    return false;  // these stand for other letters
  }
  const bool odd = (c & 1U) != 0;
  if ((c >= 0x100 && c <= 0x137) || (c >= 0x14a && c <= 0x177)) {
    return odd;
  }
  return ((c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e)) && !odd;
}

bool is_letter(char32_t c) {
  return is_small_extended_latin(c) ||
         std::any_of(kLetters.begin(), kLetters.end(),
                     [&](const Range& range) { return c >= range.first && c <= range.last; });
}

bool is_plain(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; }

// The code points of valid UTF-8.
std::vector<char32_t> decode(std::string_view text) {
  std::vector<char32_t> points;
  for (const char byte : text) {
    const auto value = static_cast<unsigned char>(byte);
    if ((value & 0xc0U) == 0x80) {
      points.back() = (points.back() << 6U) | (value & 0x3fU);
    } else {
      const unsigned mask = value < 0x80 ? 0x7fU : value < 0xe0 ? 0x1fU : value < 0xf0 ? 0xfU : 7U;
      points.push_back(value & mask);
    }
  }
  return points;
}

// RFC 3492, with its names.
constexpr std::uint32_t kBase = 36;
constexpr std::uint32_t kTMin = 1;
constexpr std::uint32_t kTMax = 26;

std::uint32_t adapt(std::uint32_t delta, std::uint32_t points, std::uint32_t damp) {
  delta = delta / damp;
  delta += delta / points;
  std::uint32_t k = 0;
  while (delta > ((kBase - kTMin) * kTMax) / 2) {
    delta /= kBase - kTMin;
    k += kBase;
  }
  return k + (((kBase - kTMin + 1) * delta) / (delta + 38));
}

char digit(std::uint32_t value) {
  return static_cast<char>(value < 26 ? 'a' + value : '0' + (value - 26));
}

void append_number(std::string& out, std::uint32_t number, std::uint32_t bias) {
  for (std::uint32_t k = kBase;; k += kBase) {
    const std::uint32_t t = k <= bias ? kTMin : std::min(k - bias, kTMax);
    if (number < t) {
      out += digit(number);
      return;
    }
    out += digit(t + (number - t) % (kBase - t));
    number = (number - t) / (kBase - t);
  }
}

// At most 63 points below 2^21: nothing overflows 32 bits.
std::string encode(const std::vector<char32_t>& points) {
  std::string out;
  for (const char32_t c : points) {
    if (c < 0x80) {
      out += static_cast<char>(c);
    }
  }
  const auto basic = static_cast<std::uint32_t>(out.size());
  if (basic > 0) {
    out += '-';
  }
  char32_t n = 0x80;
  std::uint32_t delta = 0;
  std::uint32_t bias = 72;
  for (std::uint32_t done = basic; done < points.size(); ++delta, ++n) {
    char32_t next = 0x10ffff;
    for (const char32_t c : points) {
      next = c >= n ? std::min(next, c) : next;
    }
    delta += (next - n) * (done + 1);
    n = next;
    for (const char32_t c : points) {
      if (c < n) {
        ++delta;
      } else if (c == n) {
        append_number(out, delta, bias);
        bias = adapt(delta, done + 1, done == basic ? 700 : 2);
        delta = 0;
        ++done;
      }
    }
  }
  return out;
}

}  // namespace

std::optional<std::string> to_a_label(std::string_view label) {
  constexpr std::size_t kLongest = 63;
  if (!valid_utf8(label)) {
    return std::nullopt;
  }
  const std::vector<char32_t> points = decode(label);
  const bool hyphens = label.size() >= 4 && label.substr(2, 2) == "--";
  if (points.empty() || points.size() > kLongest || hyphens || points.front() == '-' ||
      points.back() == '-' || !std::all_of(points.begin(), points.end(), [](char32_t c) {
        return is_plain(c) || is_letter(c);
      })) {
    return std::nullopt;
  }
  return "xn--" + encode(points);
}

}  // namespace carrel::policy
