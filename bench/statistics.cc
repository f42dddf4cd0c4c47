#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace carrel::bench {

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) {
    return 0;
  }
  const double place = std::clamp(q, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(std::floor(place));
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = place - static_cast<double>(below);
  return sorted[below] + (sorted[above] - sorted[below]) * part;
}

Summary summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return Summary{quantile(samples, 0.5), quantile(samples, 0.1), quantile(samples, 0.9),
                 samples.size()};
}

}  // namespace carrel::bench
