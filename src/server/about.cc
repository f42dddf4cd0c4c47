#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/files.h"
#include "base/version.h"
#include "server/handlers.h"
#include "server/routes.h"
#include "server/service.h"

// What the daemon says about itself.
namespace carrel::server {
namespace {

void add_metric(std::string& text, std::string_view name, std::string_view kind,
                std::string_view help, std::uint64_t value) {
  text += "# HELP carrel_" + std::string(name) + " " + std::string(help) + "\n# TYPE carrel_" +
          std::string(name) + " " + std::string(kind) + "\ncarrel_" + std::string(name) + " " +
          std::to_string(value) + "\n";
}

std::uint64_t resident_bytes() {
  auto text = read_file_at(AT_FDCWD, "/proc/self/statm", 256);
  if (!text.ok()) {
    return 0;
  }
  const std::size_t space = text.value().find(' ');
  return std::strtoull(text.value().c_str() + space, nullptr, 10) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Status get_health(Request& request) { return reply(request, 200, {{"status", "ok"}}); }

Status get_ready(Request& request) {
  if (request.service.stopping) {
    return Error{Code::kUnavailable, 0, "the daemon is stopping", {}};
  }
  CARREL_TRY(request.service.manager->stats());  // the database answers
  return reply(request, 200, {{"status", "ready"}});
}

Status get_version(Request& request) {
  return reply(request, 200, {{"version", kVersion}, {"api", "v1"}});
}

Status get_openapi(Request& request) { return reply(request, 200, openapi()); }

Status get_metrics(Request& request) {
  Service& service = request.service;
  CARREL_ASSIGN(const manager::Manager::Stats stats, service.manager->stats());
  const auto up = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::steady_clock::now() - service.started);
  std::string text;
  add_metric(text, "sandboxes", "gauge", "Sandboxes that have not ended", stats.live);
  add_metric(text, "sandboxes_limit", "gauge", "How many there may be", stats.most);
  add_metric(text, "sandboxes_creating", "gauge", "Sandboxes on their way", stats.creating);
  add_metric(text, "operations", "gauge", "Requests that are in a sandbox now", stats.visits);
  add_metric(text, "requests_total", "counter", "Requests", service.counters.requests);
  add_metric(text, "requests_refused_total", "counter", "Requests that were not allowed",
             service.counters.refused);
  add_metric(text, "alerts_total", "counter", "Alerts that were raised", service.alerts->raised());
  add_metric(text, "requests_failed_total", "counter", "Requests that failed here",
             service.counters.failed);
  add_metric(text, "commands_total", "counter", "Commands that were started",
             service.counters.commands);
  add_metric(text, "sandboxes_created_total", "counter", "Sandboxes that were made",
             service.counters.created);
  const native::WarmSupply::Counts warm = service.manager->warm().counts();
  add_metric(text, "warm_sandboxes", "gauge", "Sandboxes that are kept ready", warm.ready);
  add_metric(text, "warm_sandboxes_limit", "gauge", "How many there should be", warm.wanted);
  add_metric(text, "warm_hits_total", "counter", "Sandboxes that were made of a ready one",
             warm.hits);
  add_metric(text, "warm_misses_total", "counter", "Sandboxes for which there was none",
             warm.misses);
  add_metric(text, "webhook_events_total", "counter", "Events that the webhook was told",
             service.webhooks->told());
  add_metric(text, "webhook_failures_total", "counter", "Attempts to tell it that failed",
             service.webhooks->failed());
  add_metric(text, "trace_spans_total", "counter", "Spans that the collector took",
             service.traces->told());
  add_metric(text, "trace_spans_dropped_total", "counter", "Spans that nobody was told",
             service.traces->dropped());
  add_metric(text, "resident_bytes", "gauge", "Memory of this process", resident_bytes());
  add_metric(text, "uptime_seconds", "gauge", "Since its start",
             static_cast<std::uint64_t>(up.count()));
  return reply_bytes(request, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

}  // namespace carrel::server
