#include "policy/suggest.h"

#include <algorithm>
#include <array>

#include "policy/given.h"

namespace carrel::policy {
namespace {

constexpr std::size_t kLongest = 64;
constexpr std::size_t kShortestPrefix = 3;

std::string_view begun_by(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view found;
  if (word.size() < kShortestPrefix) {
    return found;
  }
  for (const std::string_view candidate : candidates) {
    if (candidate.starts_with(word)) {
      if (!found.empty()) {
        return {};
      }
      found = candidate;
    }
  }
  return found;
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  if (a.size() > kLongest || b.size() > kLongest) {
    return a == b ? 0 : std::max(a.size(), b.size());
  }
  using Row = std::array<std::size_t, kLongest + 1>;
  Row before_last{};
  Row last{};
  Row row{};
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = last;
    last = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  if (const std::string_view begun = begun_by(word, candidates); !begun.empty()) {
    return begun;
  }
  std::string_view best;
  std::size_t best_distance = 0;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    const std::size_t allowed = std::max(word.size(), candidate.size()) / 3;
    if (distance <= allowed && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view name = nearest(word, candidates);
  return name.empty() ? std::string() : concat({"did you mean '", name, "'?"});
}

}  // namespace carrel::policy
