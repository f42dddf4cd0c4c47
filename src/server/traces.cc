#include "server/traces.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/version.h"
#include "server/outgoing.h"
#include "storage/home.h"

namespace carrel::server {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;
constexpr std::size_t kBatch = 512;
constexpr auto kGather = 1s;  // before what there is is told
constexpr auto kTick = 200ms;
constexpr auto kPatience = 5s;
constexpr int kTries = 4;  // of one batch, while the collector does not answer

Json value_json(const Json& value) {
  if (value.is_boolean()) {
    return {{"boolValue", value}};
  }
  if (value.is_number_integer()) {
    return {{"intValue", value.dump()}};  // 64 bits are a text in this encoding
  }
  if (value.is_number()) {
    return {{"doubleValue", value}};
  }
  return {{"stringValue", value.is_string() ? value : Json(value.dump())}};
}

Json attribute_json(const std::string& name, const Json& value) {
  return {{"key", name}, {"value", value_json(value)}};
}

Json span_json(const Span& span) {
  Json attributes = Json::array();
  for (const auto& [name, value] : span.attributes) {
    attributes.push_back(attribute_json(name, value));
  }
  Json object{{"traceId", span.context.trace}, {"spanId", span.context.span}};
  if (!span.context.parent.empty()) {
    object["parentSpanId"] = span.context.parent;
  }
  object["name"] = span.name;
  object["kind"] = static_cast<int>(span.kind);
  object["startTimeUnixNano"] = std::to_string(span.began_ns);
  object["endTimeUnixNano"] = std::to_string(span.ended_ns);
  object["attributes"] = std::move(attributes);
  object["status"] = span.outcome == Span::Outcome::kFailed
                         ? Json{{"code", static_cast<int>(span.outcome)}}
                         : Json::object();
  return object;
}

bool is_id(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string otlp_json(const std::vector<Span>& spans) {
  Json list = Json::array();
  for (const Span& span : spans) {
    list.push_back(span_json(span));
  }
  Json scope{{"scope", {{"name", "carrel"}, {"version", kVersion}}}, {"spans", std::move(list)}};
  Json resource{{"attributes", Json::array({attribute_json("service.name", "carrel"),
                                            attribute_json("service.version", kVersion)})}};
  const Json whole{{"resourceSpans", Json::array({{{"resource", std::move(resource)},
                                                   {"scopeSpans", Json::array({scope})}}})}};
  return whole.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<http::Url> Traces::parse(const std::string& url) {
  CARREL_ASSIGN(http::Url parsed, parse_receiver(url, "traces"));
  if (parsed.target == "/") {
    parsed.target = "/v1/traces";
  }
  return parsed;
}

TraceContext Traces::begin(const http::RequestHead& head) const {
  if (url_.empty()) {
    return {};
  }
  TraceContext context;
  context.span = storage::random_hex(kSpanDigits);
  // 00-TRACE-PARENT-FLAGS
  const std::string* given = head.find("traceparent");
  const std::string_view text = given == nullptr ? std::string_view() : *given;
  if (text.size() == 55 && text.starts_with("00-") && text[35] == '-' && text[52] == '-' &&
      is_id(text.substr(3, kTraceDigits)) && is_id(text.substr(36, kSpanDigits))) {
    const bool recorded = std::string_view("13579bdf").find(text[54]) != std::string_view::npos;
    context.trace = recorded ? text.substr(3, kTraceDigits) : std::string_view();
    context.parent = text.substr(36, kSpanDigits);
  } else {
    context.trace = storage::random_hex(kTraceDigits);
  }
  return context;
}

TraceContext Traces::within(const TraceContext& outer) {
  return {outer.trace, storage::random_hex(kSpanDigits), outer.span};
}

void Traces::add(Span span) {
  if (!span.context.wanted()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostWaiting) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  waiting_.push_back(std::move(span));
}

std::size_t Traces::waiting() {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

std::vector<Span> Traces::next(const std::atomic<bool>& stopping) {
  const auto end = std::chrono::steady_clock::now() + kGather;
  while (!stopping && waiting() < kBatch && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kTick);
  }
  const std::lock_guard lock(mutex_);
  const std::size_t count = std::min(waiting_.size(), kBatch);
  std::vector<Span> batch(std::make_move_iterator(waiting_.begin()),
                          std::make_move_iterator(waiting_.begin() + static_cast<long>(count)));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<long>(count));
  return batch;
}

void Traces::run(const std::atomic<bool>& stopping) {
  const auto url = parse(url_);
  if (url_.empty() || !url.ok()) {
    return;
  }
  for (;;) {
    const bool last = stopping;
    const std::vector<Span> batch = next(stopping);
    if (batch.empty() && last) {
      return;
    }
    if (batch.empty()) {
      continue;
    }
    const std::string text = otlp_json(batch);
    Told outcome = post_json(url.value(), {}, text, kPatience);
    for (int tries = 1; outcome == Told::kLater && tries < kTries && !stopping; ++tries) {
      const auto again = std::chrono::steady_clock::now() + tries * 1s;
      while (!stopping && std::chrono::steady_clock::now() < again) {
        std::this_thread::sleep_for(kTick);
      }
      outcome = post_json(url.value(), {}, text, kPatience);
    }
    (outcome == Told::kTaken ? told_ : dropped_).fetch_add(batch.size(), std::memory_order_relaxed);
    if (last && outcome != Told::kTaken) {
      return;
    }
  }
}

}  // namespace carrel::server
