#include "policy/size.h"

#include <array>
#include <optional>
#include <string_view>

#include "base/ascii.h"

namespace carrel::policy {
namespace {

__extension__ typedef unsigned __int128 Wide;

// Fits a signed 64-bit number, which is what the kernel's files take.
constexpr std::uint64_t kMost = INT64_MAX;
constexpr std::uint64_t kMostMilliseconds = 3'650ULL * 24 * 3'600'000;
constexpr std::size_t kMostFractionDigits = 18;

constexpr std::string_view kSizeHint = "give bytes, or a number with k, m, g or t: 512m, 1.5g";
constexpr std::string_view kDurationHint =
    "give seconds, or a number with ms, s, m, h or d: 1.5, 2m";
constexpr std::string_view kCpusHint = "give a number of cores: 1, 0.5";

struct Unit {
  std::string_view suffix;
  std::uint64_t factor;
};

constexpr std::array kSizeUnits = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"k", 1ULL << 10},
    Unit{"kb", 1ULL << 10},
    Unit{"kib", 1ULL << 10},
    Unit{"m", 1ULL << 20},
    Unit{"mb", 1ULL << 20},
    Unit{"mib", 1ULL << 20},
    Unit{"g", 1ULL << 30},
    Unit{"gb", 1ULL << 30},
    Unit{"gib", 1ULL << 30},
    Unit{"t", 1ULL << 40},
    Unit{"tb", 1ULL << 40},
    Unit{"tib", 1ULL << 40},
};

constexpr std::array kDurationUnits = {
    Unit{"", 1000},    Unit{"ms", 1},        Unit{"s", 1000},
    Unit{"m", 60'000}, Unit{"h", 3'600'000}, Unit{"d", 86'400'000},
};

constexpr std::array kCoreUnits = {Unit{"", 1000}};

enum class Problem { kNone, kEmpty, kNegative, kNotANumber, kUnknownUnit, kTooLarge };

// What was written, before it meets its unit.
struct Decimal {
  Problem problem = Problem::kNone;
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;
  std::uint64_t scale = 1;  // the fraction is fraction/scale
  std::string_view suffix;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
Decimal read_decimal(std::string_view text) {
  Decimal decimal;
  if (text.empty()) {
    decimal.problem = Problem::kEmpty;
    return decimal;
  }
  if (!is_digit(text[0])) {
    const bool negative = text.size() > 1 && text[0] == '-' && is_digit(text[1]);
    decimal.problem = negative ? Problem::kNegative : Problem::kNotANumber;
    return decimal;
  }
  std::size_t at = 0;
  Wide whole = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    whole = whole * 10 + static_cast<unsigned>(text[at] - '0');
    if (whole > kMost) {
      decimal.problem = Problem::kTooLarge;
      return decimal;
    }
  }
  decimal.whole = static_cast<std::uint64_t>(whole);
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      if (at - first == kMostFractionDigits) {
        decimal.problem = Problem::kNotANumber;
        return decimal;
      }
      decimal.fraction = decimal.fraction * 10 + static_cast<unsigned>(text[at] - '0');
      decimal.scale *= 10;
    }
    if (at == first || (at < text.size() && text[at] == '.')) {
      decimal.problem = Problem::kNotANumber;
      return decimal;
    }
  }
  decimal.suffix = text.substr(at);
  return decimal;
}

template <std::size_t kSize>
std::optional<std::uint64_t> factor_of(std::string_view suffix,
                                       const std::array<Unit, kSize>& units) {
  for (const Unit& unit : units) {
    bool same = unit.suffix.size() == suffix.size();
    for (std::size_t i = 0; same && i < suffix.size(); ++i) {
      same = lower(suffix[i]) == unit.suffix[i];
    }
    if (same) {
      return unit.factor;
    }
  }
  return std::nullopt;
}

Error problem_error(const Given& given, Problem problem, std::string_view kind,
                    std::string_view hint) {
  const std::string about(hint);
  switch (problem) {
    case Problem::kEmpty:
      return bad_value(given, concat({"an empty text is not a ", kind}), about);
    case Problem::kNegative:
      return bad_value(given, concat({"a ", kind, " cannot be negative"}), about);
    case Problem::kTooLarge:
      return bad_value(given, "the number is too large");
    case Problem::kUnknownUnit:
      return bad_value(given, "unknown unit", about);
    case Problem::kNone:
    case Problem::kNotANumber:
      break;
  }
  return bad_value(given, concat({"not a ", kind}), about);
}

// The number times its unit, dropping what is left below one.
template <std::size_t kSize>
Result<std::uint64_t> read_quantity(const Given& given, const std::array<Unit, kSize>& units,
                                    std::uint64_t most, std::string_view kind,
                                    std::string_view hint) {
  const Decimal decimal = read_decimal(given.text);
  if (decimal.problem != Problem::kNone) {
    return problem_error(given, decimal.problem, kind, hint);
  }
  const std::optional<std::uint64_t> factor = factor_of(decimal.suffix, units);
  if (!factor.has_value()) {
    return problem_error(given, Problem::kUnknownUnit, kind, hint);
  }
  const Wide total =
      Wide{decimal.whole} * *factor + Wide{decimal.fraction} * *factor / decimal.scale;
  if (total > most) {
    return problem_error(given, Problem::kTooLarge, kind, hint);
  }
  if (total == 0) {
    return bad_value(given, concat({"a ", kind, " cannot be zero"}),
                     "every limit is always on; there is no \"unlimited\"");
  }
  return static_cast<std::uint64_t>(total);
}

}  // namespace

Result<std::uint64_t> parse_size(const Given& given) {
  const Decimal decimal = read_decimal(given.text);
  if (decimal.problem == Problem::kNone && decimal.scale != 1 && decimal.suffix.empty()) {
    return bad_value(given, "bytes are a whole number", std::string(kSizeHint));
  }
  return read_quantity(given, kSizeUnits, kMost, "size", kSizeHint);
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array kNames = {"", "k", "m", "g", "t"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + kNames[unit];
}

Result<std::chrono::milliseconds> parse_duration(const Given& given) {
  CARREL_ASSIGN(const std::uint64_t milliseconds,
                read_quantity(given, kDurationUnits, kMostMilliseconds, "duration", kDurationHint));
  return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
}

std::string format_duration(std::chrono::milliseconds duration) {
  const auto count = duration.count();
  if (count % 1000 != 0) {
    return std::to_string(count) + "ms";
  }
  return std::to_string(count / 1000);
}

Result<std::uint32_t> parse_cpus(const Given& given) {
  CARREL_ASSIGN(const std::uint64_t millis,
                read_quantity(given, kCoreUnits, UINT32_MAX, "number of cores", kCpusHint));
  return static_cast<std::uint32_t>(millis);
}

std::string format_cpus(std::uint32_t millis) {
  std::string text = std::to_string(millis / 1000);
  if (millis % 1000 != 0) {
    const std::string digits = std::to_string(millis % 1000 + 1000);
    text += '.';
    text += digits.substr(1);
    text.resize(text.find_last_not_of('0') + 1);
  }
  return text;
}

Result<std::uint64_t> parse_count(const Given& given, CountRange range) {
  const Decimal decimal = read_decimal(given.text);
  if (decimal.problem != Problem::kNone) {
    return problem_error(given, decimal.problem, "whole number", {});
  }
  if (decimal.scale != 1 || !decimal.suffix.empty()) {
    return problem_error(given, Problem::kNotANumber, "whole number", {});
  }
  if (decimal.whole < range.least) {
    return bad_value(given, concat({"must be at least ", std::to_string(range.least)}));
  }
  if (decimal.whole > range.most) {
    return bad_value(given, concat({"must be at most ", std::to_string(range.most)}));
  }
  return decimal.whole;
}

}  // namespace carrel::policy
