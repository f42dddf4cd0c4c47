#include "server/traces.h"

#include <gtest/gtest.h>

namespace carrel::server {
namespace {

constexpr char kUrl[] = "http://127.0.0.1:4318";
constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";

http::RequestHead head_with(const std::string& parent) {
  http::RequestHead head;
  if (!parent.empty()) {
    head.headers.push_back({"traceparent", parent});
  }
  return head;
}

TEST(TracesTest, RequestIsInTheTraceOfItsClient) {
  const Traces traces(kUrl);
  const TraceContext context =
      traces.begin(head_with(std::string("00-") + kTrace + "-00f067aa0ba902b7-01"));
  EXPECT_EQ(context.trace, kTrace);
  EXPECT_EQ(context.parent, "00f067aa0ba902b7");
  EXPECT_EQ(context.span.size(), 16U);
  const TraceContext inner = Traces::within(context);
  EXPECT_EQ(inner.trace, kTrace);
  EXPECT_EQ(inner.parent, context.span);
  EXPECT_NE(inner.span, context.span);
}

TEST(TracesTest, TraceThatIsNotRecordedIsNotTold) {
  const Traces traces(kUrl);
  for (const char* flags : {"00", "02", "0a"}) {
    const std::string parent = std::string("00-") + kTrace + "-00f067aa0ba902b7-" + flags;
    EXPECT_FALSE(traces.begin(head_with(parent)).wanted()) << flags;
  }
  EXPECT_FALSE(Traces("").begin(head_with("")).wanted());
}

TEST(TracesTest, NonsenseBeginsATraceOfItsOwn) {
  const Traces traces(kUrl);
  for (const std::string& parent :
       {std::string(), std::string("00-x"),
        std::string("00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
        std::string("00-") + kTrace + "-0000000000000000-01",
        std::string("01-") + kTrace + "-00f067aa0ba902b7-01",
        std::string("00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}) {
    const TraceContext context = traces.begin(head_with(parent));
    EXPECT_EQ(context.trace.size(), 32U) << parent;
    EXPECT_NE(context.trace, kTrace) << parent;
    EXPECT_EQ(context.parent, "") << parent;
  }
}

TEST(TracesTest, WhatHasNoRoomIsDroppedAndCounted) {
  Traces traces(kUrl);
  for (std::size_t i = 0; i < Traces::kMostWaiting + 3; ++i) {
    traces.add(
        {traces.begin(head_with("")), "x", Span::Kind::kServer, 1, 2, Span::Outcome::kUnset, {}});
  }
  EXPECT_EQ(traces.dropped(), 3U);
}

TEST(TracesTest, AddressIsThatOfACollector) {
  EXPECT_EQ(Traces::parse(kUrl)->target, "/v1/traces");
  EXPECT_EQ(Traces::parse("https://collector.example/api/spans")->target, "/api/spans");
  EXPECT_EQ(Traces::parse("http://collector.example:4318").error().code, Code::kDenied);
}

TEST(TracesTest, EncodingIsThatOfOtlp) {
  Span span{{kTrace, "00f067aa0ba902b7", {}},
            "GET /v1/health",
            Span::Kind::kServer,
            10,
            20,
            Span::Outcome::kFailed,
            {{"a", "text"}, {"b", 7}, {"c", true}}};
  const Json told = Json::parse(otlp_json({span}));
  const Json& one = told["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(one["traceId"], kTrace);
  EXPECT_EQ(one["startTimeUnixNano"], "10");
  EXPECT_EQ(one["kind"], 2);
  EXPECT_EQ(one["status"]["code"], 2);
  EXPECT_FALSE(one.contains("parentSpanId"));
  EXPECT_EQ(one["attributes"][0]["value"]["stringValue"], "text");
  EXPECT_EQ(one["attributes"][1]["value"]["intValue"], "7");
  EXPECT_EQ(one["attributes"][2]["value"]["boolValue"], true);
  EXPECT_EQ(told["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"],
            "carrel");
}

}  // namespace
}  // namespace carrel::server
