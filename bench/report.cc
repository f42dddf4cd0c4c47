#include "bench/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace carrel::bench {

namespace {

using Cells = std::array<std::string, 8>;

std::string budget_text(const Budget& budget, double limit) {
  return (budget.better == Budget::Better::kLess ? "<= " : ">= ") + number_text(limit);
}

const char* verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNone:
      return "";
    case Verdict::kMissed:
      return "MISSED";
    case Verdict::kMust:
      return "must";
    case Verdict::kAim:
      return "aim";
  }
  return "";
}

// Columns as wide as their widest cell; the first to the left, numbers to the right.
std::string align(const std::vector<Cells>& lines) {
  std::array<std::size_t, std::tuple_size_v<Cells>> widths{};
  for (const Cells& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  std::string text;
  for (const Cells& line : lines) {
    std::string out = "  ";
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - line[i].size(), ' ');
      out += i == 0 ? line[i] + space : "  " + space + line[i];
    }
    out.erase(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

bool reached(const Budget& budget, double ratio, double limit) {
  return budget.better == Budget::Better::kLess ? ratio <= limit : ratio >= limit;
}

}  // namespace

std::string number_text(double value) {
  const double size = std::fabs(value);
  int decimals = 0;
  if (size > 0 && size < 1000) {
    decimals = std::min(4, std::max(0, 2 - static_cast<int>(std::floor(std::log10(size)))));
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

void Report::leave_out(std::string what, std::string why) {
  left_out_.push_back(std::move(what) + ": " + std::move(why));
}

std::optional<double> Report::ratio(const Row& row) const {
  if (row.peer.empty()) {
    return std::nullopt;
  }
  for (const Row& other : rows_) {
    if (other.section == row.section && other.name == row.peer && other.summary.median > 0) {
      return row.summary.median / other.summary.median;
    }
  }
  return std::nullopt;
}

Verdict Report::verdict(const Row& row) const {
  const std::optional<double> found = ratio(row);
  if (!found.has_value() || !row.budget.has_value()) {
    return Verdict::kNone;
  }
  if (reached(*row.budget, *found, row.budget->aim)) {
    return Verdict::kAim;
  }
  return reached(*row.budget, *found, row.budget->must) ? Verdict::kMust : Verdict::kMissed;
}

std::string Report::to_text() const {
  std::string text;
  for (const std::string& note : notes_) {
    text += note + "\n";
  }
  std::vector<std::string> done;
  for (const Row& first : rows_) {
    if (std::find(done.begin(), done.end(), first.section) != done.end()) {
      continue;
    }
    done.push_back(first.section);
    std::vector<Cells> lines;
    lines.push_back({first.section, "median", "p10 - p90", "n", "ratio", "must", "aim", "reached"});
    for (const Row& row : rows_) {
      if (row.section != first.section) {
        continue;
      }
      const std::optional<double> found = ratio(row);
      lines.push_back({"  " + row.name, number_text(row.summary.median) + " " + row.unit,
                       number_text(row.summary.low) + " - " + number_text(row.summary.high),
                       std::to_string(row.summary.count),
                       found.has_value() ? number_text(*found) + "x of " + row.peer : "",
                       row.budget.has_value() ? budget_text(*row.budget, row.budget->must) : "",
                       row.budget.has_value() ? budget_text(*row.budget, row.budget->aim) : "",
                       verdict_text(verdict(row))});
    }
    text += "\n" + align(lines);
  }
  if (!left_out_.empty()) {
    text += "\nLeft out:\n";
  }
  for (const std::string& line : left_out_) {
    text += "  " + line + "\n";
  }
  for (const std::string& warning : warnings_) {
    text += "\nWARNING: " + warning + "\n";
  }
  return text;
}

std::string Report::to_json() const {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const Row& row : rows_) {
    Json object;
    object["section"] = row.section;
    object["name"] = row.name;
    object["unit"] = row.unit;
    object["median"] = row.summary.median;
    object["p10"] = row.summary.low;
    object["p90"] = row.summary.high;
    object["n"] = row.summary.count;
    if (const std::optional<double> found = ratio(row); found.has_value()) {
      object["peer"] = row.peer;
      object["ratio"] = *found;
    }
    if (row.budget.has_value()) {
      object["better"] = row.budget->better == Budget::Better::kLess ? "less" : "more";
      object["must"] = row.budget->must;
      object["aim"] = row.budget->aim;
    }
    if (const Verdict found = verdict(row); found != Verdict::kNone) {
      object["must_reached"] = found != Verdict::kMissed;
      object["aim_reached"] = found == Verdict::kAim;
    }
    rows.push_back(std::move(object));
  }
  Json all;
  all["rows"] = std::move(rows);
  all["left_out"] = left_out_;
  all["notes"] = notes_;
  all["warnings"] = warnings_;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace carrel::bench
