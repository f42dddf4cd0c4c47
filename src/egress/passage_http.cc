#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "egress/passage.h"
#include "egress/socks5.h"

// Requests that are read, each on its own, and the proxy for clients that insist on one.
namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kHeadPatience{15};
constexpr std::chrono::minutes kIdlePatience{5};
constexpr std::uint16_t kHttpPort = 80;

}  // namespace

policy::HttpRequest Passage::request_of(const RequestHead& head) const {
  policy::HttpRequest request;
  request.method = head.method;
  request.host = head.host;
  request.port = head.port != 0 ? head.port : kHttpPort;
  request.path = head.path;
  return request;
}

// The answers are carried back as they come; only what goes out is judged.
Task<void> Passage::carry_requests() {
  const policy::Verdict first = decide(room_->policy(), live_.flow);
  const std::unique_ptr<Watched> server = co_await dial(first);
  if (server == nullptr) {
    co_return;
  }
  Signal inward;
  spawn(signalled(carry_in(*room_, client_, *server, carried_), inward));
  const bool finished = co_await send_requests(*server);
  if (finished) {
    ::shutdown(server->fd(), SHUT_WR);
  } else {
    client_.shut();
    server->shut();
  }
  co_await inward;
  live_.server = nullptr;
}

// False: something was refused or failed, and the connection has to end.
Task<bool> Passage::send_requests(Watched& server) {
  for (;;) {
    const Deadline deadline = in(first_.empty() ? kIdlePatience : kHeadPatience);
    auto head = parse_request_head(first_);
    while (head.needs_more()) {
      const bool more = co_await read_more(deadline);
      if (!more) {
        co_return first_.empty();
      }
      head = parse_request_head(first_);
    }
    if (head.is_refused()) {
      note("request", denied("the request cannot be read safely: " + std::string(head.reason)));
      co_return false;
    }
    policy::Flow flow = live_.flow;
    flow.evidence = request_of(head.value);
    const policy::Verdict verdict = decide(room_->policy(), flow);
    const std::string shown = head.value.method + " " + head.value.path;
    note("request", verdict, shown);
    // The answers to earlier requests may be on their way, so that there is no place for one of
    // ours. Clients ask again on another connection, and are told there.
    if (!verdict.allowed() || head.value.form == RequestHead::Form::kAuthority) {
      co_return false;
    }
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(head.used));
    // CRITICAL: what goes out is what was read, not what was sent.
    const std::string text = write_request_head(head.value);
    carried_.out += text.size();
    if (!room_->spend_out(text.size())) {
      co_return false;
    }
    bool sent = co_await write_whole(server, bytes_of(text));
    if (sent) {
      sent = co_await send_body(server, head.value);
    }
    if (!sent) {
      co_return false;
    }
    if (!head.value.keeps_open) {
      co_return true;
    }
  }
}

Task<bool> Passage::send_body(Watched& server, const RequestHead& head) {
  if (head.body.kind == BodyFraming::Kind::kNone) {
    co_return true;
  }
  std::uint64_t left = head.body.length;
  ChunkedBody chunks;
  for (bool ended = false; !ended;) {
    if (head.body.kind == BodyFraming::Kind::kLength && left == 0) {
      break;
    }
    if (first_.empty()) {
      const bool more = co_await read_more(kNever);
      if (!more) {
        co_return false;
      }
    }
    std::size_t size = first_.size();
    if (head.body.kind == BodyFraming::Kind::kLength) {
      size = static_cast<std::size_t>(std::min<std::uint64_t>(size, left));
      left -= size;
    } else {
      const auto part = chunks.feed(first_);
      if (part.is_refused()) {
        note("request", denied("the request's body cannot be read safely: " +
                               std::string(part.reason)));
        co_return false;
      }
      ended = part.parsed();
      size = part.parsed() ? part.value : size;
    }
    carried_.out += size;
    if (!room_->spend_out(size)) {
      co_return false;
    }
    const bool sent = co_await write_whole(server, Bytes(first_).first(size));
    if (!sent) {
      co_return false;
    }
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(size));
  }
  co_return true;
}

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
  auto head = parse_request_head(first_);
  while (head.needs_more()) {
    const bool more = co_await read_more(deadline);
    if (!more) {
      co_return;
    }
    head = parse_request_head(first_);
  }
  if (head.is_refused() || head.value.form == RequestHead::Form::kOrigin ||
      head.value.form == RequestHead::Form::kAsterisk) {
    // g++ 12 destroys a temporary with a condition in it twice when it is part of what is awaited.
    const policy::Verdict verdict =
        denied(head.is_refused() ? std::string(head.reason) : std::string("this is a proxy"));
    co_await answer_refused(verdict, "400 Bad Request");
    co_return;
  }
  live_.flow.host = head.value.host;
  live_.flow.port = head.value.port != 0 ? head.value.port : kHttpPort;
  if (head.value.form == RequestHead::Form::kAbsolute) {
    co_await admit();
    co_return;
  }
  const policy::Verdict verdict = decide(room_->policy(), live_.flow);
  if (verdict.denied()) {
    note("connect", verdict);
    co_await answer_refused(verdict, "403 Forbidden");
    co_return;
  }
  first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(head.used));
  const bool told = co_await write_whole(
      client_, bytes_of("HTTP/1.1 200 Connection established\r\n\r\n"), deadline);
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
