#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "base/parsed.h"

// What must hold of any parser of a stream, for the fuzzers of egress.
namespace carrel::fuzz {

inline void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

// The first byte says where the rest is cut in two; what was said of the first part still holds
// when the second is there.
template <typename Parse>
auto parse_in_pieces(carrel::Bytes data, Parse parse) {
  const carrel::Bytes whole = data.empty() ? data : data.subspan(1);
  const std::size_t cut = data.empty() ? 0 : data[0] % (whole.size() + 1);
  const auto first = parse(whole.first(cut));
  auto all = parse(whole);
  require(!first.is_refused() || all.is_refused());
  require(!first.parsed() || (all.parsed() && all.used == first.used));
  require(first.used <= cut && all.used <= whole.size());
  require(all.is_refused() == !all.reason.empty());
  return all;
}

}  // namespace carrel::fuzz
