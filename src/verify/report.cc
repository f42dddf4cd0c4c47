#include "verify/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/utf8.h"

namespace carrel::verify {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array kVerdicts = {Verdict::kHeld, Verdict::kHole, Verdict::kGranted,
                                  Verdict::kNotApplicable, Verdict::kUnclear};

// XML has no way to write most control characters.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : replace_invalid_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return out;
}

std::string seconds(std::int64_t milliseconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", static_cast<double>(milliseconds) / 1000);
  return text.data();
}

void add_case(std::string& out, const Finding& finding) {
  out += "    <testcase classname=\"carrel.verify." + std::string(name_of(finding.group)) +
         "\" name=\"" + escaped(finding.name) + "\" time=\"" + seconds(finding.duration_ms) + "\"";
  const std::string detail = escaped(finding.detail);
  switch (finding.verdict) {
    case Verdict::kHeld:
      out += "/>\n";
      return;
    case Verdict::kHole:
      out += ">\n      <failure message=\"" + detail + "\"/>\n";
      break;
    case Verdict::kUnclear:
      out += ">\n      <error message=\"" + detail + "\"/>\n";
      break;
    case Verdict::kGranted:
    case Verdict::kNotApplicable:
      out += ">\n      <skipped message=\"" + detail + "\"/>\n";
      break;
  }
  out += "    </testcase>\n";
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHeld:
      return "held";
    case Verdict::kHole:
      return "hole";
    case Verdict::kGranted:
      return "granted";
    case Verdict::kNotApplicable:
      return "not applicable";
    case Verdict::kUnclear:
      return "unclear";
  }
  return "unclear";
}

std::size_t Report::count(Verdict verdict) const {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.verdict == verdict; }));
}

bool Report::held() const {
  return count(Verdict::kHole) == 0 && count(Verdict::kUnclear) == 0 && count(Verdict::kHeld) > 0;
}

std::string summary(const Report& report) {
  std::string text;
  for (const Verdict verdict : kVerdicts) {
    if (const std::size_t number = report.count(verdict); number > 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(number) + " " +
              std::string(name_of(verdict)) + (verdict == Verdict::kHole && number > 1 ? "s" : "");
    }
  }
  return text;
}

std::string to_json(const Report& report) {
  OrderedJson object{
      {"ok", report.held()}, {"backend", report.backend}, {"builder", report.builder}};
  object["notes"] = OrderedJson::array();
  for (const std::string& note : report.notes) {
    object["notes"].push_back(replace_invalid_utf8(note));
  }
  OrderedJson counts = OrderedJson::object();
  for (const Verdict verdict : kVerdicts) {
    counts[std::string(name_of(verdict))] = report.count(verdict);
  }
  object["counts"] = counts;
  object["duration_ms"] = report.duration_ms;
  object["findings"] = OrderedJson::array();
  for (const Finding& finding : report.findings) {
    object["findings"].push_back({{"name", finding.name},
                                  {"group", name_of(finding.group)},
                                  {"verdict", name_of(finding.verdict)},
                                  {"tries", finding.tries},
                                  {"detail", replace_invalid_utf8(finding.detail)},
                                  {"duration_ms", finding.duration_ms}});
  }
  return object.dump() + "\n";
}

std::string to_junit(const Report& report) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const Group group : groups()) {
    std::string cases;
    std::array<std::size_t, kVerdicts.size()> counts{};
    std::int64_t duration = 0;
    std::size_t all = 0;
    for (const Finding& finding : report.findings) {
      if (finding.group == group) {
        add_case(cases, finding);
        ++counts.at(static_cast<std::size_t>(finding.verdict));
        duration += finding.duration_ms;
        ++all;
      }
    }
    if (all == 0) {
      continue;
    }
    const auto of = [&](Verdict verdict) { return counts.at(static_cast<std::size_t>(verdict)); };
    out += "  <testsuite name=\"carrel.verify." + std::string(name_of(group)) + "\" tests=\"" +
           std::to_string(all) + "\" failures=\"" + std::to_string(of(Verdict::kHole)) +
           "\" errors=\"" + std::to_string(of(Verdict::kUnclear)) + "\" skipped=\"" +
           std::to_string(of(Verdict::kGranted) + of(Verdict::kNotApplicable)) + "\" time=\"" +
           seconds(duration) + "\">\n" + cases + "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

}  // namespace carrel::verify
