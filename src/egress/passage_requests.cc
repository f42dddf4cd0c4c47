#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "egress/passage.h"
#include "policy/credential.h"

// Requests that are read, each on its own.
namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kNextHeadPatience{15};
constexpr std::chrono::minutes kIdlePatience{5};
constexpr std::chrono::seconds kHandshakePatience{15};
constexpr std::uint16_t kPlainPort = 80;
constexpr std::uint16_t kHttpsPort = 443;

}  // namespace

policy::Flow Passage::flow_of(const http::RequestHead& head) const {
  const bool by_tls = std::holds_alternative<policy::TlsHello>(live_.flow.evidence);
  policy::HttpRequest request;
  request.over = by_tls ? policy::HttpRequest::Over::kTls : policy::HttpRequest::Over::kPlain;
  request.method = head.method;
  request.host = head.host;
  request.port = head.port != 0 ? head.port : (by_tls ? kHttpsPort : kPlainPort);
  request.path = head.path;
  policy::Flow flow = live_.flow;
  flow.evidence = std::move(request);
  return flow;
}

Task<void> Passage::end_tls(policy::Verdict verdict) {
  auto& hello = std::get<policy::TlsHello>(live_.flow.evidence);
  const policy::Host host = live_.flow.host;
  // CRITICAL: the name that the client asks for, that its certificate gets, that the server's
  // certificate has and that was decided on are one.
  if (host.is_name() ? hello.name != host : hello.name.has_value()) {
    policy::Verdict why =
        denied("the client asks for " + host.text() + " and names another server in TLS");
    co_await refuse(std::move(why));
    co_return;
  }
  TlsAuthority* authority = room_->authority();
  if (authority == nullptr) {
    policy::Verdict why = denied(
        "its requests would have to be read, and the sandbox was not made so "
        "that it trusts us with its TLS");
    co_await refuse(std::move(why));
    co_return;
  }
  hello.end = policy::TlsHello::End::kHere;
  live_.reads_requests = true;
  const std::unique_ptr<Watched> socket = co_await dial(std::move(verdict));
  if (socket == nullptr) {
    co_return;
  }
  auto asking = room_->service().servers.ask_for(host);
  if (!asking.ok()) {
    policy::Verdict why = denied(asking.error().message);
    co_await refuse(std::move(why));
    co_return;
  }
  TlsStream server(*socket, std::move(asking.value()));
  const Status good = co_await server.shake_hands(in(kHandshakePatience));
  // CRITICAL: a server whose certificate is not good gets none of ours either.
  if (!good.ok()) {
    policy::Verdict why = denied("cannot talk TLS with the server: " + good.error().message);
    co_await refuse(std::move(why));
    co_return;
  }
  auto answering = authority->answer_as(host);
  if (!answering.ok()) {
    policy::Verdict why = denied(answering.error().message);
    co_await refuse(std::move(why));
    co_return;
  }
  auto client = std::make_unique<TlsStream>(client_, std::move(answering.value()), first_);
  first_.clear();
  const Status shaken = co_await client->shake_hands(in(kHandshakePatience));
  if (!shaken.ok()) {
    note("connect", denied("cannot talk TLS with the client: " + shaken.error().message));
    co_return;
  }
  spoken_ = std::move(client);
  co_await exchange_with(server);
  live_.server = nullptr;
}

Task<void> Passage::carry_requests(policy::Verdict verdict) {
  live_.reads_requests = true;
  const std::unique_ptr<Watched> socket = co_await dial(std::move(verdict));
  if (socket == nullptr) {
    co_return;
  }
  PlainStream server(*socket);
  co_await exchange_with(server);
  live_.server = nullptr;
}

Task<void> Passage::exchange_with(Stream& server) {
  Exchange exchange(server);
  look_out_for_secrets(exchange);
  Signal inward;
  spawn(signalled(carry_answers(exchange), inward));
  const bool finished = co_await send_requests(exchange);
  if (finished) {
    co_await answered(exchange);
  } else {
    client_.shut();
  }
  live_.server->shut();
  co_await inward;
  client_.shut();
}

// What the policy says of this request, at this moment.
policy::Verdict Passage::judge(const http::RequestHead& head) const {
  const policy::Flow flow = flow_of(head);
  const auto& request = std::get<policy::HttpRequest>(flow.evidence);
  if (request.over == policy::HttpRequest::Over::kTls) {
    if (request.host != flow.host || request.port != flow.port) {
      return denied("the connection is to " + policy::endpoint_text(flow.host, flow.port) +
                    ", the request is for " + policy::endpoint_text(request.host, request.port));
    }
    if (head.form == http::RequestHead::Form::kAbsolute) {
      return denied("a request to a proxy is no request to a server");
    }
  }
  if (head.form == http::RequestHead::Form::kAuthority) {
    return denied("there is no proxy here");
  }
  policy::Verdict verdict = decide(room_->policy(), flow);
  // Where a proxy dials a name, the address is the proxy's to judge.
  const policy::IpAddress* address = live_.dialled ? &live_.address : flow.host.address();
  if (!verdict.denied() && address != nullptr) {
    policy::Verdict guard =
        may_dial(room_->policy(), flow, *address, room_->service().own_addresses());
    if (guard.denied()) {
      return guard;
    }
  }
  return verdict;
}

void Passage::look_out_for_secrets(Exchange& exchange) {
  for (const policy::Credential& credential : room_->policy().credentials) {
    if (!is_for(credential, live_.flow.host, live_.flow.port)) {
      continue;
    }
    for (const std::string& name : secrets_of(credential)) {
      if (auto value = room_->service().secret(name); value.ok()) {
        exchange.scrubber.add(value.value());
      }
    }
  }
}

Status Passage::add_credentials(http::RequestHead& head, Exchange& exchange) {
  const policy::Flow flow = flow_of(head);
  const auto drop = [&](std::string_view name) {
    std::erase_if(head.headers, [&](const http::Header& one) { return one.name == name; });
  };
  for (const policy::Credential& credential : room_->policy().credentials) {
    if (!applies(credential, flow)) {
      continue;
    }
    CARREL_ASSIGN(std::string value, fill_in(credential, [&](const std::string& name) {
                    auto secret = room_->service().secret(name);
                    if (secret.ok()) {
                      exchange.scrubber.add(secret.value());
                    }
                    return secret;
                  }));
    drop(credential.header);
    head.headers.push_back({credential.header, std::move(value)});
  }
  if (!exchange.scrubber.idle()) {
    // A part of a secret, or one that is compressed, could not be covered.
    for (const char* name : {"accept-encoding", "range", "if-range"}) {
      drop(name);
    }
    head.headers.push_back({"accept-encoding", "identity"});
  }
  return {};
}

// False: something was refused or failed, and the connection has to end.
Task<bool> Passage::send_requests(Exchange& exchange) {
  for (;;) {
    const Deadline deadline = in(first_.empty() ? kIdlePatience : kNextHeadPatience);
    auto head = http::parse_request_head(first_);
    while (head.needs_more()) {
      const bool more = co_await read_more(deadline);
      if (!more) {
        co_return first_.empty();
      }
      head = http::parse_request_head(first_);
    }
    co_await answered(exchange);
    if (exchange.state == Exchange::State::kEnded) {
      co_return false;
    }
    policy::Verdict verdict;
    std::string shown;
    if (head.is_refused()) {
      verdict = denied("the request cannot be read safely: " + std::string(head.reason));
    } else {
      verdict = judge(head.value);
      shown = head.value.method + " " + head.value.path;
    }
    if (verdict.allowed()) {
      const Status added = add_credentials(head.value, exchange);
      if (!added.ok()) {
        verdict = denied("its credential cannot be added: " + added.error().message);
      }
    }
    note("request", verdict, std::move(shown));
    if (!verdict.allowed()) {
      exchange.refused = true;
      co_await answer_refused(verdict, kForbidden);
      co_return false;
    }
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(head.used));
    exchange.method = head.value.method == "HEAD" ? http::Method::kHead : http::Method::kGet;
    exchange.upgrades = head.value.upgrades;
    exchange.state = Exchange::State::kAsked;
    // CRITICAL: what goes out is what was read, not what was sent.
    const std::string text = http::write_request_head(head.value);
    bool sent = co_await send(exchange, bytes_of(text));
    if (sent) {
      sent = co_await send_body(exchange, head.value);
    }
    if (!sent) {
      // The server may have answered before it had read everything.
      co_await answered(exchange);
      co_return false;
    }
    if (head.value.upgrades) {
      co_await answered(exchange);
      if (exchange.state == Exchange::State::kTunnel) {
        const bool rest = co_await send_the_rest(exchange);
        co_return rest;
      }
    }
    if (!head.value.keeps_open) {
      co_return true;
    }
  }
}

Task<bool> Passage::send(Exchange& exchange, Bytes bytes) {
  carried_.out += bytes.size();
  if (!room_->spend_out(bytes.size())) {
    live_.server->shut();
    co_return false;
  }
  const bool sent = co_await exchange.server->write_whole(bytes, kNever);
  co_return sent;
}

Task<bool> Passage::send_the_rest(Exchange& exchange) {
  for (;;) {
    const bool sent = co_await send(exchange, first_);
    if (!sent) {
      co_return false;
    }
    first_.clear();
    const bool more = co_await read_more(kNever);
    if (!more) {
      co_return false;
    }
  }
}

Task<bool> Passage::send_body(Exchange& exchange, const http::RequestHead& head) {
  if (head.body.kind == http::BodyFraming::Kind::kNone) {
    co_return true;
  }
  std::uint64_t left = head.body.length;
  http::ChunkedBody chunks;
  for (bool ended = false; !ended;) {
    if (head.body.kind == http::BodyFraming::Kind::kLength && left == 0) {
      break;
    }
    if (first_.empty()) {
      const bool more = co_await read_more(kNever);
      if (!more) {
        live_.server->shut();
        co_return false;
      }
    }
    std::size_t size = first_.size();
    if (head.body.kind == http::BodyFraming::Kind::kLength) {
      size = static_cast<std::size_t>(std::min<std::uint64_t>(size, left));
      left -= size;
    } else {
      const auto part = chunks.feed(first_);
      if (part.is_refused()) {
        note("request",
             denied("the request's body cannot be read safely: " + std::string(part.reason)));
        live_.server->shut();
        co_return false;
      }
      ended = part.parsed();
      size = part.parsed() ? part.value : size;
    }
    const bool sent = co_await send(exchange, Bytes(first_).first(size));
    if (!sent) {
      co_return false;
    }
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(size));
  }
  co_return true;
}

}  // namespace carrel::egress
