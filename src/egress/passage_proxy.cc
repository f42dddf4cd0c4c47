#include <utility>

#include "egress/passage.h"
#include "egress/socks5.h"

// The proxy for clients that insist on one.
namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kHeadPatience{15};
constexpr std::uint16_t kHttpPort = 80;

}  // namespace

Task<void> Passage::serve_proxied() {
  const Deadline deadline = in(kHeadPatience);
  if (!enter()) {
    co_return;
  }
  while (first_.empty()) {
    const bool more = co_await read_more(deadline);
    if (!more) {
      co_return;
    }
  }
  if (first_.front() == 5) {
    co_await serve_socks();
    co_return;
  }
  auto head = http::parse_request_head(first_);
  while (head.needs_more()) {
    const bool more = co_await read_more(deadline);
    if (!more) {
      co_return;
    }
    head = http::parse_request_head(first_);
  }
  if (head.is_refused() || head.value.form == http::RequestHead::Form::kOrigin ||
      head.value.form == http::RequestHead::Form::kAsterisk) {
    // g++ 12 destroys a temporary with a condition in it twice when it is part of what is awaited.
    const policy::Verdict verdict =
        denied(head.is_refused() ? std::string(head.reason) : std::string("this is a proxy"));
    co_await answer_refused(verdict, kBadRequest);
    co_return;
  }
  live_.flow.host = head.value.host;
  live_.flow.port = head.value.port != 0 ? head.value.port : kHttpPort;
  if (head.value.form == http::RequestHead::Form::kAbsolute) {
    co_await admit();
    co_return;
  }
  const policy::Verdict verdict = decide(room_->policy(), live_.flow);
  if (verdict.denied()) {
    note("connect", verdict);
    co_await answer_refused(verdict, kForbidden);
    co_return;
  }
  first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(head.used));
  constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";
  const bool told = co_await write_whole(client_, bytes_of(kEstablished), deadline);
  if (told) {
    co_await admit();
  }
}

Task<void> Passage::serve_socks() {
  const Deadline deadline = in(kHeadPatience);
  auto greeting = parse_socks5_greeting(first_);
  while (greeting.needs_more()) {
    const bool more = co_await read_more(deadline);
    if (!more) {
      co_return;
    }
    greeting = parse_socks5_greeting(first_);
  }
  if (greeting.is_refused()) {
    client_.reset_on_close();
    co_return;
  }
  first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(greeting.used));
  const auto method = socks5_method(greeting.value);
  const bool greeted = co_await write_whole(client_, method, deadline);
  if (!greeted || !greeting.value.no_password) {
    co_return;
  }
  auto request = parse_socks5_request(first_);
  while (request.needs_more()) {
    const bool more = co_await read_more(deadline);
    if (!more) {
      co_return;
    }
    request = parse_socks5_request(first_);
  }
  policy::Verdict verdict = denied(std::string(request.reason));
  Socks5Reply reply = request.value.refusal;
  if (request.parsed()) {
    live_.flow.host = request.value.host;
    live_.flow.port = request.value.port;
    verdict = decide(room_->policy(), live_.flow);
    reply = verdict.denied() ? Socks5Reply::kNotAllowed : Socks5Reply::kSucceeded;
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(request.used));
  }
  if (verdict.denied()) {
    note("connect", verdict);
  }
  const auto answer = socks5_reply(reply);
  const bool told = co_await write_whole(client_, answer, deadline);
  if (told && !verdict.denied()) {
    co_await admit();
  }
}

}  // namespace carrel::egress
