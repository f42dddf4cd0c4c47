#include "egress/passage.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <utility>

#include "egress/client_hello.h"
#include "egress/sniff.h"
#include "kernel/captive_ports.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kEvidencePatience{10};
constexpr std::chrono::seconds kSilence{2};
constexpr std::chrono::milliseconds kRefusalPatience{250};
constexpr std::chrono::seconds kDialPatience{10};
constexpr std::size_t kMostAddresses = 4;
constexpr std::size_t kMostEvidence = 64U << 10;
constexpr std::size_t kReadAtOnce = 16U << 10;
constexpr int kOriginalDestination = 80;  // SO_ORIGINAL_DST, and IP6T_SO_ORIGINAL_DST

// Where the program wanted to go.
std::optional<SocketAddress> original_destination(int fd) {
  SocketAddress here;
  here.size = sizeof here.storage;
  if (::getsockname(fd, here.get(), &here.size) != 0) {
    return std::nullopt;
  }
  const bool four = here.storage.ss_family == AF_INET;
  SocketAddress meant;
  meant.size = sizeof meant.storage;
  if (::getsockopt(fd, four ? SOL_IP : SOL_IPV6, kOriginalDestination, meant.get(), &meant.size) !=
      0) {
    return std::nullopt;
  }
  // Somebody who connects to our own socket means nobody.
  return std::memcmp(&meant.storage, &here.storage, meant.size) == 0 ? std::nullopt
                                                                     : std::optional(meant);
}

}  // namespace

Passage::Passage(std::shared_ptr<Room> room, UniqueFd client)
    : room_(std::move(room)), client_(room_->service().loop, std::move(client)) {
  live_.client = &client_;
}

Passage::~Passage() {
  if (connected_) {
    policy::Verdict verdict;
    verdict.outcome = policy::Verdict::Outcome::kAllowed;
    verdict.reason = live_.ended_by.empty() ? room_->used_up() : live_.ended_by;
    note("end", verdict);
  }
  room_->leave(live_);
}

void Passage::note(std::string_view event, const policy::Verdict& verdict, std::string detail) {
  DecisionRecord record;
  record.event = event;
  record.host = live_.flow.host.text();
  record.port = live_.flow.port;
  if (live_.dialled) {
    record.address = live_.address.text();
  }
  record.detail = std::move(detail);
  record.allowed = verdict.allowed();
  record.rule = verdict.rule;
  record.reason = verdict.reason;
  record.bytes_out = carried_.out;
  record.bytes_in = carried_.in;
  record.duration_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_).count());
  room_->log(std::move(record));
}

Task<void> Passage::serve_redirected() {
  const auto meant = original_destination(client_.fd());
  co_await serve_meant(meant);
}

Task<void> Passage::serve_meant(std::optional<SocketAddress> meant) {
  const auto address = meant.has_value() ? meant->address() : std::nullopt;
  if (!address.has_value()) {
    client_.reset_on_close();
    co_return;
  }
  const policy::Host* name = room_->names().name_of(*address);
  live_.flow.host = name != nullptr ? *name : policy::Host(*address);
  live_.flow.port = meant->port();
  if (enter()) {
    co_await admit();
  }
}

// CRITICAL: whoever is served counts, and from the beginning. Those that are too many are not even
// asked what they want: to wait for their answers would be to serve them.
bool Passage::enter() {
  const Status entered = room_->enter(live_);
  if (!entered.ok()) {
    note("connect", denied(entered.error().message));
    client_.reset_on_close();
  }
  return entered.ok();
}

Task<void> Passage::admit() {
  std::string used_up = room_->used_up();
  if (!used_up.empty()) {
    policy::Verdict why = denied(std::move(used_up));
    co_await refuse(std::move(why));
    co_return;
  }
  policy::Verdict verdict = decide(room_->policy(), live_.flow);
  if (verdict.outcome == policy::Verdict::Outcome::kNeedsEvidence) {
    verdict = co_await look_at_evidence();
  }
  if (verdict.outcome == policy::Verdict::Outcome::kNeedsRequests) {
    co_await end_tls(std::move(verdict));
    co_return;
  }
  if (!verdict.allowed()) {
    co_await refuse(std::move(verdict));
    co_return;
  }
  if (std::holds_alternative<policy::HttpRequest>(live_.flow.evidence)) {
    co_await carry_requests(std::move(verdict));
  } else {
    co_await carry(std::move(verdict));
  }
}

Task<bool> Passage::read_more(Deadline deadline) {
  std::array<std::uint8_t, kReadAtOnce> buffer;
  const auto n = co_await spoken_->read_some(buffer, deadline);
  if (n <= 0 || first_.size() + static_cast<std::size_t>(n) > kMostEvidence) {
    co_return false;
  }
  first_.insert(first_.end(), buffer.begin(), buffer.begin() + n);
  co_return true;
}

Task<policy::Verdict> Passage::look_at_evidence() {
  const Deadline deadline = in(kEvidencePatience);
  const Deadline silence = in(kSilence);
  for (;;) {
    const Sniffed sniffed = sniff(first_);
    if (sniffed == Sniffed::kTls) {
      const auto hello = parse_client_hello(first_);
      if (hello.is_refused()) {
        co_return denied("the first bytes are no TLS that can be read: " +
                         std::string(hello.reason));
      }
      if (hello.parsed()) {
        live_.flow.evidence = policy::TlsHello{hello.value.server_name};
        break;
      }
    } else if (sniffed == Sniffed::kHttp) {
      const auto head = http::parse_request_head(first_);
      if (head.is_refused()) {
        co_return denied("the request cannot be read safely: " + std::string(head.reason));
      }
      if (head.parsed() && head.value.form == http::RequestHead::Form::kAuthority) {
        co_return denied("CONNECT is for a proxy");
      }
      if (head.parsed()) {
        live_.flow.evidence = flow_of(head.value).evidence;
        break;
      }
    } else if (sniffed == Sniffed::kOpaque) {
      live_.flow.evidence = policy::OpaqueBytes{};
      break;
    }
    const Deadline until = first_.empty() ? silence : deadline;
    const bool more = co_await read_more(until);
    if (!more && first_.empty() && Clock::now() >= silence) {
      // It waits for the server to speak first, as TLS and HTTP never do.
      live_.flow.evidence = policy::OpaqueBytes{};
      break;
    }
    if (!more) {
      co_return denied("the connection did not say what it is for");
    }
  }
  policy::Verdict verdict = decide(room_->policy(), live_.flow);
  if (verdict.outcome == policy::Verdict::Outcome::kNeedsEvidence) {
    verdict = denied("its first bytes do not decide");
  }
  co_return verdict;
}

Task<std::unique_ptr<Watched>> Passage::dial(policy::Verdict verdict) {
  Upstream& settings = room_->service().upstream;
  Result<UpstreamSettings> upstream = settings.current();
  if (std::string complaint = settings.take_complaint(); !complaint.empty()) {
    note("config", verdict, std::move(complaint));
  }
  if (!upstream.ok()) {
    policy::Verdict why = denied(upstream.error().message);
    co_await refuse(std::move(why));
    co_return nullptr;
  }
  if (upstream->proxy.has_value()) {
    std::unique_ptr<Watched> server =
        co_await dial_parent(std::move(verdict), *upstream->proxy, upstream->resolver);
    co_return server;
  }
  std::vector<policy::IpAddress> addresses;
  if (const policy::IpAddress* literal = live_.flow.host.address()) {
    addresses.push_back(*literal);
  } else {
    addresses = room_->remembered(live_.flow.host);
  }
  if (addresses.empty()) {
    auto resolved = co_await room_->service().resolver.resolve(live_.flow.host, upstream->resolver);
    if (!resolved.ok()) {
      policy::Verdict unknown = denied("cannot find its address: " + resolved.error().message);
      note("connect", unknown, resolved.error().hint);
      co_await tell_refused(std::move(unknown));
      co_return nullptr;
    }
    addresses = std::move(resolved.value());
    room_->remember(live_.flow.host, addresses);
  }
  policy::Verdict last = denied("it has no address");
  for (std::size_t i = 0; i < addresses.size() && i < kMostAddresses; ++i) {
    // The policy may have changed while we waited.
    if (!live_.ended_by.empty()) {
      last = denied(live_.ended_by);
      break;
    }
    const policy::IpAddress address = addresses[i];
    // CRITICAL: what is dialled is exactly what was judged.
    policy::Verdict guard =
        may_dial(room_->policy(), live_.flow, address, room_->service().own_addresses());
    if (!guard.allowed()) {
      last = std::move(guard);
      continue;
    }
    auto fd = make_socket(address, SOCK_STREAM);
    if (!fd.ok()) {
      last = denied(fd.error().to_string());
      continue;
    }
    auto server = std::make_unique<Watched>(room_->service().loop, std::move(fd.value()));
    live_.server = server.get();
    live_.address = address;
    live_.dialled = true;
    const int result = co_await connect_to(*server, SocketAddress::of(address, live_.flow.port),
                                           in(kDialPatience));
    if (result == 0 && live_.ended_by.empty()) {
      connected_ = true;
      note("connect", verdict);
      co_return server;
    }
    live_.server = nullptr;
    live_.dialled = false;
    last = denied("cannot connect to " + address.text() + ": " + std::strerror(-result));
  }
  co_await refuse(std::move(last));
  co_return nullptr;
}

Task<void> Passage::carry(policy::Verdict verdict) {
  const std::unique_ptr<Watched> server = co_await dial(std::move(verdict));
  if (server != nullptr) {
    co_await relay(*room_, client_, *server, std::move(first_), carried_);
    live_.server = nullptr;
  }
}

Task<void> Passage::refuse(policy::Verdict verdict) {
  verdict.outcome = policy::Verdict::Outcome::kDenied;
  note("connect", verdict);
  co_await tell_refused(std::move(verdict));
}

// A client that speaks HTTP is told why; others see a reset.
Task<void> Passage::tell_refused(policy::Verdict verdict) {
  const Deadline deadline = in(kRefusalPatience);
  while (sniff(first_) == Sniffed::kNeedMore) {
    const bool more = co_await read_more(deadline);
    if (!more) {
      break;
    }
  }
  if (sniff(first_) == Sniffed::kHttp) {
    co_await answer_refused(verdict, kForbidden);
  } else {
    client_.reset_on_close();
  }
}

Task<void> Passage::answer_refused(const policy::Verdict& verdict, std::string_view status) {
  std::string body = "carrel: the sandbox's network policy does not allow " +
                     policy::endpoint_text(live_.flow.host, live_.flow.port) + ": " +
                     verdict.reason + "\n";
  if (!verdict.hint.empty()) {
    body += "hint: " + verdict.hint + "\n";
  }
  std::string text = "HTTP/1.1 ";
  text.append(status)
      .append("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n")
      .append("X-Carrel-Denied: 1\r\nContent-Length: ")
      .append(std::to_string(body.size()))
      .append("\r\n\r\n")
      .append(body);
  co_await spoken_->write_whole(bytes_of(text), in(kRefusalPatience));
  // What the client still sends would make the kernel reset the connection before it has read.
  co_await spoken_->end();
  std::array<std::uint8_t, 4096> rest;
  const Deadline deadline = in(kRefusalPatience);
  std::ptrdiff_t n = 1;
  while (n > 0) {
    n = co_await read_some(client_, rest, deadline);
  }
}

}  // namespace carrel::egress
