#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/statistics.h"

namespace carrel::bench {

// A line of the budget: how the ratio to the peer must be, and what it aims at.
struct Budget {
  enum class Better { kLess, kMore };
  Better better = Better::kLess;
  double must = 0;
  double aim = 0;
};

enum class Verdict { kNone, kMissed, kMust, kAim };

// One thing that was measured, one way.
struct Row {
  std::string section;
  std::string name;
  std::string unit;
  Summary summary;
  std::string peer;  // the name of the row of the same section to compare with; empty: none
  std::optional<Budget> budget;
};

// Everything that one run found, and what it left out and why. The order is that of adding.
class Report {
 public:
  void add(Row row) { rows_.push_back(std::move(row)); }
  void leave_out(std::string what, std::string why);
  // A fact about the machine or the run, or something the reader should be warned of.
  void note(std::string text) { notes_.push_back(std::move(text)); }
  void warn(std::string text) { warnings_.push_back(std::move(text)); }

  [[nodiscard]] const std::vector<Row>& rows() const { return rows_; }
  // The median of the row divided by that of its peer; absent without the peer.
  [[nodiscard]] std::optional<double> ratio(const Row& row) const;
  [[nodiscard]] Verdict verdict(const Row& row) const;

  // For people: a table for each section, in the order of the first row of each.
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] std::string to_json() const;

 private:
  std::vector<Row> rows_;
  std::vector<std::string> left_out_;
  std::vector<std::string> notes_;
  std::vector<std::string> warnings_;
};

// Three significant digits, without an exponent.
std::string number_text(double value);

}  // namespace carrel::bench
