#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace carrel::policy {

// How many insertions, deletions, replacements and swaps of neighbours lead from one word to the
// other (optimal string alignment). Bytes, not characters; words longer than 64 bytes are as far
// from everything as they are long.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that was most likely meant: the only one that `word` (three bytes or more) begins,
// or else the nearest one within a third of its length. Empty if there is none; the first wins a
// tie.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// "did you mean 'X'?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace carrel::policy
