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
constexpr int kTidyEvery = 50;  // ticks

}  // namespace

void Alerts::note(const Incident& incident) {
  const auto alert = rules_.note(incident, storage::wall_clock_ms());
  if (!alert.has_value()) {
    return;
  }
  raised_.fetch_add(1, std::memory_order_relaxed);
  storage::add_event(
      home_, storage::alert_event(alert->last.sandbox, {.kind = name_of(alert->last.suspicion),
                                                        .count = alert->count,
                                                        .window_ms = alert->window_ms,
                                                        .last = alert->last.detail}));
}

void Alerts::run(const std::atomic<bool>& stopping) {
  EventTail events(home_, EventTail::From::kEnd);
  EventTail decisions(home_, EventTail::From::kEnd, "net/log");
  std::uint64_t refused = refused_;
  for (int tick = 0; !stopping; ++tick) {
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
    if (tick % kTidyEvery == 0) {
      rules_.tidy(storage::wall_clock_ms());
    }
    std::this_thread::sleep_for(kTick);
  }
}

}  // namespace carrel::server
