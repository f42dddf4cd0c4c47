#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "policy/given.h"

namespace carrel::policy {

// Quantities as people write them. All of these take plain decimal digits only: no sign, no
// exponent, no spaces, nothing but ASCII; at most one dot, with a digit on both sides of it. Zero
// is an error everywhere, because no limit of Carrel is ever "unlimited". Every `format_*` gives a
// text that its `parse_*` reads back to the same value.

// Bytes: "1048576", "64k", "512m", "1.5g", "2GiB", "1t". Units are powers of 1024 in either case,
// with or without "b" or "ib"; a fraction of a byte is dropped.
Result<std::uint64_t> parse_size(const Given& given);
std::string format_size(std::uint64_t bytes);

// Time: "60" and "1.5" are seconds; "500ms", "2s", "2m", "1h", "7d".
Result<std::chrono::milliseconds> parse_duration(const Given& given);
std::string format_duration(std::chrono::milliseconds duration);

// Cores in thousandths: "1" is 1000, "0.5" is 500. What is below a thousandth is dropped.
Result<std::uint32_t> parse_cpus(const Given& given);
std::string format_cpus(std::uint32_t millis);

// A whole number within the range, both ends included. The only quantity that may be zero, when
// `least` is.
struct CountRange {
  std::uint64_t least = 1;
  std::uint64_t most = UINT64_MAX;
};
Result<std::uint64_t> parse_count(const Given& given, CountRange range);

}  // namespace carrel::policy
