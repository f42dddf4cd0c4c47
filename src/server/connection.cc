#include <algorithm>
#include <string>

#include "base/ascii.h"
#include "base/code_name.h"
#include "http/tcp.h"
#include "server/log.h"
#include "server/preview.h"
#include "server/request.h"
#include "server/routes.h"
#include "server/service.h"

namespace carrel::server {
namespace {

using Clock = std::chrono::steady_clock;

// What a route wants to know before its handler is called.
Status read_input(const Route& route, Request& request) {
  const http::RequestHead& head = request.connection.head();
  CARREL_ASSIGN(request.query, parse_query(head.query));
  for (const auto& [name, value] : request.query) {
    const bool known =
        std::any_of(route.parameters.begin(), route.parameters.end(),
                    [&wanted = name](const Parameter& one) { return one.name == wanted; });
    if (!known) {
      return Error{Code::kInvalid, 0, "the query has no '" + name + "'", {}};
    }
  }
  for (const Parameter& parameter : route.parameters) {
    if (parameter.need == Parameter::Need::kRequired &&
        !request.query.contains(std::string(parameter.name))) {
      return Error{Code::kInvalid, 0, "'" + std::string(parameter.name) + "' is missing", {}};
    }
  }
  if (route.body != Body::kJson) {
    return {};
  }
  CARREL_ASSIGN(const std::string text, request.connection.whole_body(kLargestJson));
  CARREL_ASSIGN(request.body, text.empty() ? Result<Json>(Json::object()) : parse_json(text));
  return {};
}

// JSON is said to be JSON: what a form of a web page can send is not.
bool has_right_type(const Route& route, const http::RequestHead& head) {
  if (route.body != Body::kJson || head.body.kind == http::BodyFraming::Kind::kNone) {
    return true;
  }
  const std::string* type = head.find("content-type");
  return type != nullptr &&
         lower(http::trimmed(type->substr(0, type->find(';')))) == "application/json";
}

// The id of the client's trace, from a traceparent as W3C says it; empty: there is none.
std::string trace_of(const http::RequestHead& head) {
  const std::string* parent = head.find("traceparent");
  if (parent == nullptr || parent->size() != 55 || !parent->starts_with("00-") ||
      parent->find_first_not_of("0123456789abcdef-") != std::string::npos) {
    return {};
  }
  return parent->substr(3, 32);
}

// A client's part of what is served at once.
class Turn {
 public:
  Turn(RequestsAtOnce& requests, const std::string& owner)
      : requests_(requests), owner_(owner), taken_(owner.empty() || requests.enter(owner)) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (taken_ && !owner_.empty()) {
      requests_.leave(owner_);
    }
  }
  [[nodiscard]] bool taken() const { return taken_; }

 private:
  RequestsAtOnce& requests_;
  std::string owner_;
  bool taken_;
};

class Exchange {
 public:
  Exchange(Service& service, http::ServerConnection& connection, const http::Listener& listener,
           int socket)
      : service_(service), connection_(connection), listener_(listener), socket_(socket) {}

  // Serves the request that was read. False: its answer broke off.
  bool serve() {
    const Clock::time_point began = Clock::now();
    const std::int64_t began_ns = wall_clock_ns();
    trace_ = service_.traces->begin(connection_.head());
    service_.counters.requests.fetch_add(1, std::memory_order_relaxed);
    route_and_handle();
    log_line(
        {{"event", "request"},
         {"trace", trace_of(connection_.head())},
         {"method", connection_.head().method},
         {"route", route_ == nullptr ? std::string() : std::string(route_->path)},
         {"status", status_},
         {"owner", owner_},
         {"sandbox", sandbox_},
         {"ms",
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count()}});
    tell_trace(began_ns);
    return !broken_;
  }

 private:
  void tell_trace(std::int64_t began_ns) {
    if (!trace_.wanted()) {
      return;
    }
    const std::string route = route_ == nullptr ? "" : std::string(route_->path);
    Span span{trace_,
              connection_.head().method + (route.empty() ? "" : " " + route),
              Span::Kind::kServer,
              began_ns,
              wall_clock_ns(),
              Span::Outcome::kUnset,
              {}};
    span.outcome = status_ >= 500 || broken_ ? Span::Outcome::kFailed : Span::Outcome::kUnset;
    span.attributes = {{"http.request.method", connection_.head().method},
                       {"http.response.status_code", status_}};
    auto note = [&](const char* name, const std::string& value) {
      if (!value.empty()) {
        span.attributes.emplace_back(name, value);
      }
    };
    note("http.route", route);
    note("carrel.sandbox", sandbox_);
    note("carrel.owner", owner_);
    service_.traces->add(std::move(span));
  }

  void refuse(http::Answer answer) {
    status_ = answer.status;
    if (answer.status == 401 || answer.status == 403) {
      service_.counters.refused.fetch_add(1, std::memory_order_relaxed);
      if (sandbox_.empty()) {
        service_.counters.refused_at_door.fetch_add(1, std::memory_order_relaxed);
      }
    } else if (answer.status >= 500) {
      service_.counters.failed.fetch_add(1, std::memory_order_relaxed);
    }
    (void)connection_.answer(answer);
  }

  void route_and_handle() {
    const http::RequestHead& head = connection_.head();
    if (Status placed = service_.access.check_place(head, listener_); !placed.ok()) {
      return refuse(problem(placed.error()));
    }
    auto identity = service_.access.identify(head, listener_, socket_);
    if (!identity.ok()) {
      return refuse(problem(identity.error()));
    }
    const Admitted::Stay stay(service_.admitted, identity.value(), socket_);
    if (!service_.access.still_admits(identity.value())) {
      return refuse(problem(401, "unauthenticated", "this token was taken back"));
    }
    if (const auto preview = find_preview(head); preview.has_value()) {
      return show_preview(*preview, identity.value());
    }
    Match match = find_route(head.method, head.path);
    route_ = match.route;
    const Scope needed = route_ == nullptr ? Scope::kRead : route_->scope;
    if (needed != Scope::kOpen && identity->scope == Scope::kOpen) {
      return refuse(problem(401, "unauthenticated", "a token is needed"));
    }
    if (route_ == nullptr && !match.methods.empty()) {
      http::Answer answer = problem(405, "method_not_allowed", "this path has " + match.methods);
      answer.headers.push_back({"allow", match.methods});
      return refuse(std::move(answer));
    }
    if (route_ == nullptr) {
      return refuse(problem(404, "not_found", "there is no such path"));
    }
    if (needed == Scope::kWrite && identity->scope != Scope::kWrite) {
      return refuse(problem(403, "denied", "this token may only look"));
    }
    if (!has_right_type(*route_, head)) {
      return refuse(problem(415, "unsupported_media_type", "the body is not application/json"));
    }
    Request request{service_, connection_, socket_, identity->caller, std::move(match.arguments),
                    {},       {},          trace_};
    owner_ = request.caller.owner;
    sandbox_ = route_->path.starts_with("/v1/sandboxes/") ? request.arguments.front() : "";
    const Turn turn(service_.requests, owner_);
    if (!turn.taken()) {
      return refuse(problem(429, "resource", "this token has too many requests at once"));
    }
    Status done = read_input(*route_, request);
    const bool too_large = !done.ok() && done.error().code == Code::kResource;
    if (too_large) {
      return refuse(problem(413, "too_large", done.error().message));
    }
    done = done.ok() ? route_->handle(request) : done;
    status_ = route_->status;
    if (!done.ok() && !connection_.answered()) {
      refuse(problem(done.error()));
    } else if (!done.ok()) {
      status_ = 0;  // cut off in the middle
      broken_ = true;
    }
  }

  // A request for a server in a sandbox.
  void show_preview(const Preview& preview, const Access::Identity& identity) {
    Request request{service_, connection_, socket_, identity.caller, {preview.id}, {}, {}, trace_};
    sandbox_ = preview.id;
    const bool everybody = service_.manager->is_public(preview.id, preview.port);
    if (!everybody && identity.scope != Scope::kWrite) {
      return identity.scope == Scope::kOpen
                 ? refuse(problem(401, "unauthenticated", "a token is needed"))
                 : refuse(problem(403, "denied", "this token may only look"));
    }
    if (everybody) {
      request.caller = {};  // as its owner, whoever it is
    }
    owner_ = identity.scope == Scope::kOpen ? "public" : identity.caller.owner;
    const Turn turn(service_.requests, owner_);
    if (!turn.taken()) {
      return refuse(problem(429, "resource", "there are too many requests at once"));
    }
    const Status done = serve_preview(request, preview);
    status_ = 200;
    if (!done.ok() && !connection_.answered()) {
      refuse(problem(done.error()));
    } else if (!done.ok()) {
      status_ = 0;
      broken_ = true;
    }
  }

  Service& service_;
  http::ServerConnection& connection_;
  const http::Listener& listener_;
  int socket_;
  const Route* route_ = nullptr;
  int status_ = 0;
  std::string owner_;
  std::string sandbox_;
  TraceContext trace_;
  bool broken_ = false;  // the answer has no end
};

http::Answer answer_to_bad_head(const Error& error) {
  switch (error.code) {
    case Code::kTimeout:
      return problem(408, "timeout", "the request took too long");
    case Code::kResource:
      return problem(431, "too_large", error.message);
    case Code::kUnsupported: {
      http::Answer answer = problem(405, "method_not_allowed", error.message);
      answer.headers.push_back({"allow", "GET, POST, PUT, DELETE"});
      return answer;
    }
    default:
      return problem(400, "invalid", error.message);
  }
}

}  // namespace

namespace {

void serve_requests(Service& service, http::Stream& stream, const http::Listener& listener,
                    int socket) {
  http::ServerConnection requests(stream, http::ServerPatience{});
  while (requests.keeps_open() && !service.stopping) {
    if (Status came = requests.next(); !came.ok()) {
      if (came.error().code != Code::kGone && came.error().code != Code::kUnavailable) {
        // It can be the last word only: where the next request begins, nobody knows.
        const http::Answer answer = answer_to_bad_head(came.error());
        (void)requests.answer_and_close(answer);
      }
      break;
    }
    Exchange exchange(service, requests, listener, socket);
    if (!exchange.serve()) {
      break;
    }
  }
}

// Who does not speak TLS hears nothing.
void serve_by_tls(Service& service, http::Stream& below, const http::Listener& listener,
                  int socket) {
  constexpr std::chrono::seconds kHandshake{10};
  constexpr std::chrono::seconds kFarewell{2};
  const auto identity = service.identity.get();
  if (identity == nullptr) {
    return;
  }
  auto session = identity->serve(below);
  if (session.ok() && session.value()->begin("serve by TLS", Clock::now() + kHandshake).ok()) {
    serve_requests(service, *session.value(), listener, socket);
    session.value()->finish(Clock::now() + kFarewell);
  }
}

}  // namespace

void serve_connection(Service& service, UniqueFd& connection, const http::Listener& listener) {
  const int socket = connection.get();
  http::TcpStream stream(std::move(connection));
  if (listener.encrypted) {
    serve_by_tls(service, stream, listener, socket);
  } else {
    serve_requests(service, stream, listener, socket);
  }
  connection = stream.release();
}

}  // namespace carrel::server
