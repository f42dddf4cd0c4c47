#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "http/request_head.h"
#include "http/url.h"
#include "server/json_input.h"

namespace carrel::server {

// Where something belongs in a trace (W3C Trace Context). All ids are hex digits.
struct TraceContext {
  std::string trace;   // 32; empty: nobody wants to know of it
  std::string span;    // 16, of what is going on
  std::string parent;  // of whoever asked; empty: nobody said

  [[nodiscard]] bool wanted() const { return !trace.empty(); }
};

// What took some time.
struct Span {
  TraceContext context;
  std::string name;
  enum class Kind { kInternal = 1, kServer = 2 } kind = Kind::kInternal;
  std::int64_t began_ns = 0;  // since 1970
  std::int64_t ended_ns = 0;
  enum class Outcome { kUnset = 0, kFailed = 2 } outcome = Outcome::kUnset;
  std::vector<std::pair<std::string, Json>> attributes;  // texts, numbers and truths
};

std::int64_t wall_clock_ns();

// Tells a collector of OpenTelemetry about requests and commands: OTLP over HTTP, as JSON. Nobody
// waits for it: what does not fit in its queue is dropped and counted.
class Traces {
 public:
  static constexpr std::size_t kMostWaiting = 4096;

  // Empty: nobody is told.
  explicit Traces(std::string url) : url_(std::move(url)) {}

  // What is wrong with the address. Without a path it is that of a collector: "/v1/traces".
  static Result<http::Url> parse(const std::string& url);

  // Of a request: in the trace of its traceparent, or in a new one. Not wanted where there is no
  // collector, or the client says that this trace is not recorded.
  [[nodiscard]] TraceContext begin(const http::RequestHead& head) const;
  // Of something within it.
  [[nodiscard]] static TraceContext within(const TraceContext& outer);
  void add(Span span);

  // Until `stopping`; then what is left is told once. For a thread of its own.
  void run(const std::atomic<bool>& stopping);

  [[nodiscard]] std::uint64_t told() const { return told_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }

 private:
  std::size_t waiting();
  std::vector<Span> next(const std::atomic<bool>& stopping);

  std::string url_;
  std::mutex mutex_;
  std::deque<Span> waiting_;
  std::atomic<std::uint64_t> told_ = 0;
  std::atomic<std::uint64_t> dropped_ = 0;
};

// The spans as a collector takes them.
std::string otlp_json(const std::vector<Span>& spans);

}  // namespace carrel::server
