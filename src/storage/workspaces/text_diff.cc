#include "storage/workspaces/text_diff.h"

#include <algorithm>
#include <unordered_map>

namespace carrel::storage {

namespace {

constexpr std::size_t kContext = 3;
// Beyond this many differing lines an exact answer is not worth its time.
constexpr std::ptrdiff_t kMostDistance = 1000;

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::size_t size = end == std::string_view::npos ? text.size() : end + 1;
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

// Lines as numbers, so that comparing two is quick.
class Numbering {
 public:
  std::vector<std::size_t> operator()(const std::vector<std::string_view>& lines) {
    std::vector<std::size_t> numbers;
    numbers.reserve(lines.size());
    for (const std::string_view line : lines) {
      numbers.push_back(known_.try_emplace(line, known_.size()).first->second);
    }
    return numbers;
  }

 private:
  std::unordered_map<std::string_view, std::size_t> known_;
};

// Which lines of each text have no counterpart in the other.
struct Marks {
  std::vector<bool> removed;
  std::vector<bool> added;
};

// The furthest that each diagonal gets with each number of steps, and the way back from there.
void walk(const std::vector<std::size_t>& a, const std::vector<std::size_t>& b, std::size_t begin,
          std::size_t end_a, std::size_t end_b, Marks& marks) {
  const auto n = static_cast<std::ptrdiff_t>(end_a - begin);
  const auto m = static_cast<std::ptrdiff_t>(end_b - begin);
  const std::ptrdiff_t most = std::min(n + m, kMostDistance);
  std::vector<std::vector<std::ptrdiff_t>> history;
  std::vector<std::ptrdiff_t> reach(static_cast<std::size_t>(2 * most + 3), 0);
  const auto at = [&](std::vector<std::ptrdiff_t>& row, std::ptrdiff_t k) -> std::ptrdiff_t& {
    return row[static_cast<std::size_t>(k + most + 1)];
  };
  const auto same = [&](std::ptrdiff_t x, std::ptrdiff_t y) {
    return a[begin + static_cast<std::size_t>(x)] == b[begin + static_cast<std::size_t>(y)];
  };
  std::ptrdiff_t distance = 0;
  bool found = false;
  for (; distance <= most && !found; ++distance) {
    history.push_back(reach);
    for (std::ptrdiff_t k = -distance; k <= distance; k += 2) {
      const bool down = k == -distance || (k != distance && at(reach, k - 1) < at(reach, k + 1));
      std::ptrdiff_t x = down ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < n && x - k < m && same(x, x - k)) {
        ++x;
      }
      at(reach, k) = x;
      if (x >= n && x - k >= m) {
        found = true;
        break;
      }
    }
  }
  if (!found) {
    std::fill(marks.removed.begin() + static_cast<std::ptrdiff_t>(begin),
              marks.removed.begin() + static_cast<std::ptrdiff_t>(end_a), true);
    std::fill(marks.added.begin() + static_cast<std::ptrdiff_t>(begin),
              marks.added.begin() + static_cast<std::ptrdiff_t>(end_b), true);
    return;
  }
  std::ptrdiff_t x = n;
  std::ptrdiff_t y = m;
  for (std::ptrdiff_t d = distance - 1; d > 0; --d) {
    std::vector<std::ptrdiff_t>& before = history[static_cast<std::size_t>(d)];
    const std::ptrdiff_t k = x - y;
    const bool down = k == -d || (k != d && at(before, k - 1) < at(before, k + 1));
    const std::ptrdiff_t old_x = down ? at(before, k + 1) : at(before, k - 1);
    const std::ptrdiff_t old_y = old_x - (down ? k + 1 : k - 1);
    if (down) {
      marks.added[begin + static_cast<std::size_t>(old_y)] = true;
    } else {
      marks.removed[begin + static_cast<std::size_t>(old_x)] = true;
    }
    x = old_x;
    y = old_y;
  }
}

}  // namespace

bool is_binary(std::string_view contents) {
  constexpr std::size_t kBeginning = 8000;
  return contents.size() > kLargestText ||
         contents.substr(0, kBeginning).find('\0') != std::string_view::npos;
}

std::vector<Hunk> compare_text(std::string_view before, std::string_view after) {
  const std::vector<std::string_view> old_lines = split_lines(before);
  const std::vector<std::string_view> new_lines = split_lines(after);
  Numbering numbering;
  const std::vector<std::size_t> a = numbering(old_lines);
  const std::vector<std::size_t> b = numbering(new_lines);
  std::size_t begin = 0;
  while (begin < a.size() && begin < b.size() && a[begin] == b[begin]) {
    ++begin;
  }
  std::size_t end_a = a.size();
  std::size_t end_b = b.size();
  while (end_a > begin && end_b > begin && a[end_a - 1] == b[end_b - 1]) {
    --end_a;
    --end_b;
  }
  Marks marks{std::vector<bool>(a.size()), std::vector<bool>(b.size())};
  walk(a, b, begin, end_a, end_b, marks);

  std::vector<Hunk> hunks;
  std::size_t i = 0;
  std::size_t j = 0;
  std::size_t since = kContext + 1;  // unchanged lines since the last changed one
  const auto is_changed = [&] {
    return (i < a.size() && marks.removed[i]) || (j < b.size() && marks.added[j]);
  };
  while (i < a.size() || j < b.size()) {
    if (!is_changed()) {
      if (!hunks.empty() && since < kContext) {
        hunks.back().lines.push_back({' ', std::string(old_lines[i])});
      }
      ++since;
      ++i;
      ++j;
      continue;
    }
    if (hunks.empty() || since > 2 * kContext) {
      const std::size_t lead = std::min({kContext, since, i, j});
      Hunk hunk;
      hunk.old_start = i - lead + 1;
      hunk.new_start = j - lead + 1;
      for (std::size_t k = i - lead; k < i; ++k) {
        hunk.lines.push_back({' ', std::string(old_lines[k])});
      }
      hunks.push_back(std::move(hunk));
    } else {
      // What lies between is shown as well.
      for (std::size_t k = i - (since > kContext ? since - kContext : 0); k < i; ++k) {
        hunks.back().lines.push_back({' ', std::string(old_lines[k])});
      }
    }
    since = 0;
    while (i < a.size() && marks.removed[i]) {
      hunks.back().lines.push_back({'-', std::string(old_lines[i++])});
    }
    while (j < b.size() && marks.added[j]) {
      hunks.back().lines.push_back({'+', std::string(new_lines[j++])});
    }
  }
  for (Hunk& hunk : hunks) {
    for (const Hunk::Line& line : hunk.lines) {
      hunk.old_lines += line.kind != '+' ? 1 : 0;
      hunk.new_lines += line.kind != '-' ? 1 : 0;
    }
    hunk.old_start -= hunk.old_lines == 0 ? 1 : 0;
    hunk.new_start -= hunk.new_lines == 0 ? 1 : 0;
  }
  return hunks;
}

}  // namespace carrel::storage
