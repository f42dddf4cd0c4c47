#include "mcp/http_transport.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "http/event_reader.h"
#include "mcp/flood.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGoodbye{1000};
constexpr milliseconds kForAReply{5000};
constexpr std::size_t kLongestSession = 512;
constexpr std::size_t kLargestRefusal = 64U << 10;
constexpr milliseconds kAnyLength = std::chrono::hours(24 * 30);  // the deadline decides

// "application/json; charset=utf-8" is application/json.
std::string media_type(const http::Response& response) {
  const std::string* type = response.head.find("content-type");
  if (type == nullptr) {
    return {};
  }
  return lower(http::trimmed(std::string_view(*type).substr(0, type->find(';'))));
}

bool is_good(const http::Response& response) { return response.status() / 100 == 2; }

}  // namespace

// What comes back from a POST, read as it comes.
class HttpTransport::Answer {
 public:
  explicit Answer(const Take& take) : take_(take), events_(kLargestMessage) {}

  Status feed(const http::Response& response, std::string_view bytes) {
    bytes_ += bytes.size();
    CARREL_TRY(check_flood(bytes_, messages_));
    if (is_good(response) && media_type(response) == "text/event-stream") {
      return events_.feed(bytes, [this](const http::StreamEvent& event) {
        return event.data.empty() ? Status() : take_text(event.data);
      });
    }
    if (body_.size() + bytes.size() > (is_good(response) ? kLargestMessage : kLargestRefusal)) {
      return Error{Code::kResource, 0, "its answer is too long", {}};
    }
    body_ += bytes;
    return {};
  }

  // The whole body is there.
  Status finish(const http::Response& response) {
    if (is_good(response) && media_type(response) != "application/json") {
      return {};
    }
    return body_.empty() ? Status() : take_text(body_);
  }

  [[nodiscard]] bool done() const { return done_; }

 private:
  // Once the answer is there nobody reads on: an error ends the request.
  Status take_text(std::string_view text) {
    CARREL_TRY(check_flood(bytes_, ++messages_));
    CARREL_ASSIGN(Message message, parse_message(text));
    CARREL_ASSIGN(const Next next, take_(std::move(message)));
    done_ = next == Next::kDone;
    return done_ ? Status(Error{Code::kGone, 0, "the answer is there", {}}) : Status();
  }

  const Take& take_;
  http::EventReader events_;
  std::string body_;
  std::size_t bytes_ = 0;
  std::size_t messages_ = 0;
  bool done_ = false;
};

http::Request HttpTransport::to_request(const Outgoing& outgoing, const Patience& patience) const {
  http::Request request;
  request.method = http::Method::kPost;
  request.url = place_.url;
  request.deadline = patience.deadline;
  request.body = to_text(outgoing.message);
  request.headers = {{"Content-Type", "application/json"},
                     {"Accept", "application/json, text/event-stream"}};
  if (!outgoing.version.empty()) {
    request.headers.push_back({"MCP-Protocol-Version", outgoing.version});
  }
  if (outgoing.era == Era::kModern) {
    request.headers.push_back({"Mcp-Method", header_value(outgoing.message.method)});
    if (!outgoing.name.empty()) {
      request.headers.push_back({"Mcp-Name", header_value(outgoing.name)});
    }
    for (const auto& [name, value] : outgoing.parameters) {
      request.headers.push_back({"Mcp-Param-" + name, header_value(value)});
    }
  } else if (!session_.empty()) {
    request.headers.push_back({"Mcp-Session-Id", session_});
  }
  request.headers.insert(request.headers.end(), place_.headers.begin(), place_.headers.end());
  return request;
}

Result<http::Response> HttpTransport::post(const Outgoing& outgoing, const Patience& patience,
                                           const http::Client::BodySink& sink) const {
  http::ClientOptions options = place_.client;
  options.cancel = patience.cancel;
  options.idle_patience = kAnyLength;
  return http::Client(std::move(options)).send(to_request(outgoing, patience), sink);
}

Error HttpTransport::refusal(const http::Response& response) const {
  const int status = response.status();
  const std::string message =
      http::to_string(place_.url) + " answers with status " + std::to_string(status);
  if (status == 401 || status == 403) {
    return Error{Code::kDenied, 0, message, "does it need a header, such as Authorization?"};
  }
  if (status == 404 && !session_.empty()) {
    return Error{Code::kConflict, 0, message + ": it has forgotten the session", {}};
  }
  if (status / 100 == 4 && status != 408 && status != 429) {
    return Error{Code::kUnsupported, 0, message, "is this the address of its MCP endpoint?"};
  }
  return Error{Code::kUnavailable, 0, message, {}};
}

Status HttpTransport::keep_session(const http::Response& response) {
  const std::string* session = response.head.find("mcp-session-id");
  if (session == nullptr) {
    return {};
  }
  const bool good =
      !session->empty() && session->size() <= kLongestSession &&
      std::all_of(session->begin(), session->end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!good) {
    return Error{Code::kDenied, 0, http::to_string(place_.url) + " gives a session a bad name", {}};
  }
  session_ = *session;
  return {};
}

Status HttpTransport::exchange(const Outgoing& request, const Take& take,
                               const Patience& patience) {
  if (request.message.method == "initialize") {
    session_.clear();
  }
  version_ = request.version;
  Answer answer(take);
  bool looked = false;
  auto response =
      post(request, patience, [&](const http::Response& from, std::string_view bytes) -> Status {
        if (!looked && request.message.method == "initialize" && is_good(from)) {
          CARREL_TRY(keep_session(from));
        }
        looked = true;
        return answer.feed(from, bytes);
      });
  if (answer.done()) {
    return {};
  }
  if (!response.ok()) {
    return response.error();
  }
  const http::Response& head = response.value();
  // An error of the protocol says more than the status that it came with.
  const bool protocol_speaks =
      head.status() != 401 && head.status() != 403 && (head.status() != 404 || session_.empty());
  if (is_good(head) || (protocol_speaks && media_type(head) == "application/json")) {
    Status finished = answer.finish(head);
    if (answer.done()) {
      return {};
    }
    if (!finished.ok() && is_good(head)) {
      return finished.error();
    }
  }
  if (!is_good(head)) {
    return refusal(head);
  }
  return Error{Code::kUnavailable,
               0,
               http::to_string(place_.url) + " ended its answer before it was complete",
               {}};
}

Status HttpTransport::send(const Outgoing& message, const Patience& patience) {
  const Patience bounded{std::min(patience.deadline, http::Clock::now() + kForAReply),
                         patience.cancel};
  std::size_t dropped = 0;
  CARREL_ASSIGN(const http::Response response,
                post(message, bounded, [&](const http::Response&, std::string_view bytes) {
                  dropped += bytes.size();
                  return dropped <= kLargestRefusal
                             ? Status()
                             : Error{Code::kResource, 0, "its answer is too long", {}};
                }));
  return is_good(response) ? Status() : Status(refusal(response));
}

HttpTransport::~HttpTransport() {
  if (session_.empty()) {
    return;
  }
  http::Request request;
  request.method = http::Method::kDelete;
  request.url = place_.url;
  request.deadline = http::Clock::now() + kGoodbye;
  request.headers = place_.headers;
  request.headers.push_back({"Mcp-Session-Id", session_});
  if (!version_.empty()) {
    request.headers.push_back({"MCP-Protocol-Version", version_});
  }
  (void)http::Client(place_.client).fetch(request, kLargestRefusal, kGoodbye);
}

}  // namespace carrel::mcp
