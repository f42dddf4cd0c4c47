#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/report.h"

namespace carrel::bench {

// One way to do the thing that a section measures.
struct Contender {
  std::string name;
  std::function<Result<double>()> sample;
  std::string peer = {};
  std::optional<Budget> budget = std::nullopt;
  int every = 1;  // takes part in each n-th round: the slow ones would eat all the time
};

struct Rounds {
  int warm_up = 3;
  int counted = 100;
  // Before each sample, so that what the one before left to be done in the background is no burden
  // to this one.
  int pause_ms = 0;
};

// Takes samples of all contenders in turn, A B C A B C, so that what else happens on the machine
// hits all alike; the one to begin with changes from round to round, because a slow neighbour
// leaves work behind. Adds a row for each to the report. A sample that fails is not counted and is
// a warning; a contender that fails again and again is left out.
void interleave(Report& report, const std::string& section, const std::string& unit,
                std::vector<Contender> contenders, const Rounds& rounds);

}  // namespace carrel::bench
