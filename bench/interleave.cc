#include "bench/interleave.h"

#include <unistd.h>

namespace carrel::bench {

namespace {

// So many failures are a warning; after one more it is no use to go on.
constexpr int kToleratedFailures = 5;

struct Series {
  std::vector<double> samples;
  int failures = 0;
  std::string reason;

  [[nodiscard]] bool given_up() const { return failures > kToleratedFailures; }
};

}  // namespace

void interleave(Report& report, const std::string& section, const std::string& unit,
                std::vector<Contender> contenders, const Rounds& rounds) {
  std::vector<Series> all(contenders.size());
  std::size_t first = 0;
  for (int round = -rounds.warm_up; round < rounds.counted; ++round, ++first) {
    for (std::size_t step = 0; step < contenders.size(); ++step) {
      const std::size_t index = (first + step) % contenders.size();
      const Contender& contender = contenders[index];
      Series& series = all[index];
      const bool its_turn = round % contender.every == 0;
      if (series.given_up() || !its_turn) {
        continue;
      }
      if (rounds.pause_ms > 0) {
        ::usleep(static_cast<useconds_t>(rounds.pause_ms) * 1000);
      }
      Result<double> sample = contender.sample();
      if (!sample.ok()) {
        ++series.failures;
        series.reason = sample.error().to_string();
      } else if (round >= 0) {
        series.samples.push_back(sample.value());
      }
    }
  }
  for (std::size_t index = 0; index < contenders.size(); ++index) {
    Contender& contender = contenders[index];
    Series& series = all[index];
    const std::string what = section + ", " + contender.name;
    if (series.given_up() || series.samples.empty()) {
      report.leave_out(what, series.reason);
      continue;
    }
    if (series.failures > 0) {
      report.warn(what + ": " + std::to_string(series.failures) + " failed beside " +
                  std::to_string(series.samples.size()) +
                  " samples, the last with: " + series.reason);
    }
    report.add(Row{section, contender.name, unit, summarize(std::move(series.samples)),
                   contender.peer, contender.budget});
  }
}

}  // namespace carrel::bench
