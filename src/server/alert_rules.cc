#include "server/alert_rules.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace carrel::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kForbiddenCall = 128 + 31;  // SIGSYS

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::size_t many_of(Suspicion suspicion) {
  return suspicion == Suspicion::kFailure ? AlertRules::kManyFailures : AlertRules::kMany;
}

}  // namespace

std::string_view name_of(Suspicion suspicion) {
  switch (suspicion) {
    case Suspicion::kNetwork:
      return "network";
    case Suspicion::kPath:
      return "path";
    case Suspicion::kLimit:
      return "limit";
    case Suspicion::kSyscall:
      return "syscall";
    case Suspicion::kRequest:
      return "request";
    case Suspicion::kFailure:
      break;
  }
  return "failure";
}

std::vector<Incident> incidents_of_event(std::string_view line) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) {
    return {};
  }
  const std::string kind = text_of(object, "event");
  const std::string id = text_of(object, "sandbox");
  if (kind == "security") {
    return {{id, Suspicion::kPath, text_of(object, "path")}};
  }
  if (kind == "limit") {
    return {{id, Suspicion::kLimit, text_of(object, "limit")}};
  }
  const auto code = object.find("exit_code");
  if (kind != "result" || code == object.end() || !code->is_number_integer() || *code == 0) {
    return {};
  }
  std::vector<Incident> incidents = {{id, Suspicion::kFailure, text_of(object, "reason")}};
  if (*code == kForbiddenCall) {
    incidents.push_back({id, Suspicion::kSyscall, text_of(object, "reason")});
  }
  return incidents;
}

std::optional<Incident> incident_of_decision(std::string_view line) {
  if (line.find("\"denied\"") == std::string_view::npos) {
    return std::nullopt;
  }
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object() || text_of(object, "verdict") != "denied") {
    return std::nullopt;
  }
  return Incident{text_of(object, "sandbox"), Suspicion::kNetwork, text_of(object, "host")};
}

Alert AlertRules::tell(Seen& seen, std::uint64_t count, std::int64_t now_ms) {
  seen.times.clear();
  seen.quiet_until_ms = now_ms + kWindowMs;
  seen.untold = 0;
  return {seen.last, count, kWindowMs};
}

std::optional<Alert> AlertRules::note(const Incident& incident, std::int64_t now_ms) {
  Seen& seen = seen_[{incident.sandbox, incident.suspicion}];
  const std::size_t many = many_of(incident.suspicion);
  ++seen.untold;
  seen.last = incident;
  std::erase_if(seen.times, [&](std::int64_t time) { return time <= now_ms - kWindowMs; });
  if (seen.times.size() < many) {
    seen.times.push_back(now_ms);
  }
  if (seen.times.size() < many || now_ms < seen.quiet_until_ms) {
    return std::nullopt;
  }
  return tell(seen, seen.quiet_until_ms == 0 ? many : seen.untold, now_ms);
}

std::vector<Alert> AlertRules::tidy(std::int64_t now_ms) {
  std::vector<Alert> alerts;
  for (auto& [key, seen] : seen_) {
    if (seen.quiet_until_ms == 0 || now_ms < seen.quiet_until_ms) {
      continue;
    }
    if (seen.untold >= many_of(key.second)) {
      alerts.push_back(tell(seen, seen.untold, now_ms));
    } else {
      seen.quiet_until_ms = 0;
    }
  }
  std::erase_if(seen_, [&](const auto& one) {
    const Seen& seen = one.second;
    return now_ms >= seen.quiet_until_ms &&
           (seen.times.empty() || seen.times.back() <= now_ms - kWindowMs);
  });
  return alerts;
}

}  // namespace carrel::server
