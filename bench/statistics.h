#pragma once

#include <cstddef>
#include <vector>

namespace carrel::bench {

// What is said of a series of samples: robust numbers only, because on a shared machine a mean
// tells more about the neighbours than about what was measured.
struct Summary {
  double median = 0;
  double low = 0;   // a tenth of the samples is below
  double high = 0;  // a tenth of the samples is above
  std::size_t count = 0;
};

// The value below which the part `q` (0 to 1) of the samples lies, between two samples by linear
// interpolation; 0 for no samples. `sorted` is in ascending order.
double quantile(const std::vector<double>& sorted, double q);

Summary summarize(std::vector<double> samples);

}  // namespace carrel::bench
