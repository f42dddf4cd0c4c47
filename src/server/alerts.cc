#include "server/alerts.h"

#include <chrono>
#include <string>
#include <thread>

#include "server/event_tail.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::server {
namespace {

constexpr std::chrono::milliseconds kTick{200};

}  // namespace

void Alerts::note(const Incident& incident) {
  if (const auto alert = rules_.note(incident, storage::wall_clock_ms()); alert.has_value()) {
    raise(*alert);
  }
}

void Alerts::raise(const Alert& alert) {
  raised_.fetch_add(1, std::memory_order_relaxed);
  storage::add_event(
      home_, storage::alert_event(alert.last.sandbox, {.kind = name_of(alert.last.suspicion),
                                                       .count = alert.count,
                                                       .window_ms = alert.window_ms,
                                                       .last = alert.last.detail}));
}

void Alerts::run(const std::atomic<bool>& stopping) {
  EventTail events(home_, EventTail::From::kEnd);
  EventTail decisions(home_, EventTail::From::kEnd, "net/log");
  std::uint64_t refused = refused_;
  while (!stopping) {
    for (const std::string& line : events.next()) {
      for (const Incident& incident : incidents_of_event(line)) {
        note(incident);
      }
    }
    for (const std::string& line : decisions.next()) {
      if (const auto incident = incident_of_decision(line); incident.has_value()) {
        note(*incident);
      }
    }
    for (const std::uint64_t now = refused_; refused != now; ++refused) {
      note({{}, Suspicion::kRequest, "requests that were refused"});
    }
    for (const Alert& alert : rules_.tidy(storage::wall_clock_ms())) {
      raise(alert);
    }
    std::this_thread::sleep_for(kTick);
  }
}

}  // namespace carrel::server
