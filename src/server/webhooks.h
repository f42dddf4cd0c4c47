#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/url.h"
#include "server/outgoing.h"
#include "storage/home.h"

namespace carrel::server {

// HMAC-SHA256 (RFC 2104), as 64 hex digits.
std::string hmac_sha256(std::string_view key, std::string_view data);

// What a receiver checks: "t=SECONDS,v1=HEX", the HMAC of "SECONDS.BODY". The time is signed so
// that an old event cannot be sent again by somebody else.
std::string sign_event(std::string_view secret, std::int64_t seconds, std::string_view body);

// Tells every event to one address of the operator's, in their order, each until it was taken (2xx)
// or refused for good (4xx but 408 and 429). The last one that was told is on disk: the next daemon
// goes on after it, and may tell one twice but leaves none out. Plain HTTP goes to this host alone.
class Webhooks {
 public:
  struct Options {
    std::string url;     // empty: nobody is told
    std::string secret;  // not empty where there is a url
  };
  Webhooks(const storage::Home& home, Options options)
      : home_(home), options_(std::move(options)) {}

  // What is wrong with the options.
  static Status check(const Options& options);
  // Until `stopping` is true.
  void run(const std::atomic<bool>& stopping);

  [[nodiscard]] std::uint64_t told() const { return told_; }
  [[nodiscard]] std::uint64_t failed() const { return failed_; }

 private:
  [[nodiscard]] Told tell(const http::Url& url, const std::string& line) const;
  void note_last(const std::string& line) const;

  const storage::Home& home_;
  Options options_;
  std::atomic<std::uint64_t> told_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;
};

}  // namespace carrel::server
