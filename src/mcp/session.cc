#include "mcp/session.h"

#include <algorithm>

#include "policy/given.h"

namespace carrel::mcp {
namespace {

using std::chrono::milliseconds;

// A server of the legacy era may not answer the first question at all.
constexpr milliseconds kLongestProbe{5000};
constexpr milliseconds kToSayCancelled{500};

bool leaves_connection(const Error& error) {
  return error.code == Code::kTimeout || error.code == Code::kGone ||
         error.code == Code::kUnsupported;
}

Error refusal(const Question& question, const RpcError& error) {
  Code code = Code::kUnavailable;
  if (error.code == kInvalidParams) {
    code = Code::kInvalid;
  } else if (error.code == kMethodNotFound || error.code == kUnsupportedVersion ||
             error.code == kMissingCapability) {
    code = Code::kUnsupported;
  }
  return Error{code, 0, "the MCP server refuses " + question.method + ": " + describe(error), {}};
}

// Every result of the modern era says what kind it is; one that does not is complete.
Status check_kind(const Question& question, const Json& result) {
  const auto kind = result.find("resultType");
  if (kind == result.end() || *kind == "complete") {
    return {};
  }
  if (*kind == "input_required") {
    return Error{Code::kUnsupported,
                 0,
                 "the MCP server asks for input before it answers " + question.method +
                     ", which this client does not give",
                 {}};
  }
  return Error{
      Code::kUnsupported,
      0,
      "the MCP server answers " + question.method + " with something that is not a result: " +
          policy::printable(kind->dump(-1, ' ', false, Json::error_handler_t::replace), 60),
      {}};
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(Connect connect, Protocol protocol,
                                               const Patience& patience) {
  std::unique_ptr<Session> session(new Session(std::move(connect)));
  CARREL_TRY(session->connect());
  if (Status agreed = session->negotiate(protocol, patience); !agreed.ok()) {
    return session->explained(std::move(agreed.error()));
  }
  return session;
}

Status Session::connect() {
  transport_.reset();
  CARREL_ASSIGN(transport_, connect_());
  return {};
}

// Adds what the server said on its standard error.
Error Session::explained(Error error) {
  const std::string words = transport_ != nullptr ? transport_->last_words() : "";
  if (!words.empty() && error.code != Code::kGone && error.hint.empty()) {
    error.hint = "it said: " + words;
  }
  return error;
}

Outgoing Session::outgoing(Message message) const {
  return Outgoing{.message = std::move(message), .era = era_, .version = version_};
}

Status Session::negotiate(Protocol protocol, const Patience& patience) {
  if (protocol == Protocol::kLegacy) {
    return open_legacy(protocol, patience);
  }
  CARREL_ASSIGN(const Found found, probe(patience));
  if (found == Found::kModern) {
    return {};
  }
  if (protocol == Protocol::kModern) {
    return Error{Code::kUnsupported,
                 0,
                 "the MCP server does not speak version " + std::string(kModernVersion),
                 {}};
  }
  return open_legacy(protocol, patience);
}

// Whatever is no sign of a modern server means a legacy one; that it cannot be reached, or wants to
// know who asks, means nothing.
Result<Session::Found> Session::probe(const Patience& patience) {
  era_ = Era::kModern;
  version_ = kModernVersion;
  const auto left =
      std::chrono::duration_cast<milliseconds>(patience.deadline - http::Clock::now());
  const Patience less{http::Clock::now() + std::min(kLongestProbe, left / 2), patience.cancel};
  auto answer = exchange({.method = "server/discover"}, less);
  if (answer.ok() && !answer.value().error.has_value()) {
    const auto about = read_discovery(answer.value().result);
    about_ = about.value_or(About{});
    return about.has_value() ? Found::kModern : Found::kLegacy;
  }
  if (answer.ok()) {
    const auto supported = read_supported(*answer.value().error);
    const auto& known = legacy_versions();
    const bool shared = supported.has_value() &&
                        std::any_of(supported->begin(), supported->end(), [&](const auto& one) {
                          return std::find(known.begin(), known.end(), one) != known.end();
                        });
    if (supported.has_value() && !shared) {
      return Error{Code::kUnsupported,
                   0,
                   "the MCP server speaks no version of MCP that this client does",
                   {}};
    }
    return Found::kLegacy;
  }
  const Code code = answer.error().code;
  if (transport_->kind() == Transport::Kind::kStdio && code == Code::kUnavailable) {
    // Some end when the first thing they hear is not `initialize`.
    CARREL_TRY(connect());
    broken_.reset();
    return Found::kLegacy;
  }
  const bool silent = transport_->kind() == Transport::Kind::kStdio && code == Code::kTimeout;
  if (silent || code == Code::kUnsupported) {
    return Found::kLegacy;
  }
  return std::move(answer.error());
}

Status Session::open_legacy(Protocol protocol, const Patience& patience) {
  era_ = Era::kLegacy;
  version_.clear();
  const Question question{.method = "initialize", .params = initialize_params()};
  CARREL_ASSIGN(Answer answer, exchange(question, patience));
  if (answer.error.has_value()) {
    // A modern server that was slow to begin has taken the first question meanwhile.
    if (answer.error->code == kUnsupportedVersion && protocol == Protocol::kAuto) {
      CARREL_ASSIGN(const Found found, probe(patience));
      if (found == Found::kModern) {
        return {};
      }
    }
    return refusal(question, *answer.error);
  }
  CARREL_ASSIGN(Initialized initialized, read_initialized(answer.result));
  version_ = std::move(initialized.version);
  about_ = std::move(initialized.about);
  return transport_->send(
      outgoing(notification_message("notifications/initialized", Json::object())), patience);
}

void Session::answer_request(const Message& message, const Patience& patience) {
  const Message reply = message.method == "ping" ? result_message(message.id, Json::object())
                                                 : error_message(message.id, kMethodNotFound,
                                                                 "this client offers nothing");
  (void)transport_->send(outgoing(reply), patience);
}

Result<Transport::Next> Session::take(std::int64_t id, const Question& question, Message message,
                                      Answer& answer, const Patience& patience) {
  switch (message.kind) {
    case Message::Kind::kRequest:
      answer_request(message, patience);
      return Transport::Next::kWait;
    case Message::Kind::kNotification: {
      const Json& params = message.params;
      if (message.method == "notifications/progress" && question.progress &&
          params.value("progressToken", Json()) == id && params.contains("progress") &&
          params["progress"].is_number()) {
        Progress progress{.progress = params["progress"].get<double>(), .total = {}, .message = {}};
        if (const auto total = params.find("total"); total != params.end() && total->is_number()) {
          progress.total = total->get<double>();
        }
        if (const auto text = params.find("message"); text != params.end() && text->is_string()) {
          progress.message = policy::printable(text->get_ref<const std::string&>());
        }
        question.progress(progress);
      }
      return Transport::Next::kWait;
    }
    case Message::Kind::kResult:
    case Message::Kind::kError:
      break;
  }
  const auto* number = std::get_if<std::int64_t>(&message.id);
  const bool for_nobody = std::holds_alternative<std::monostate>(message.id);
  if (!for_nobody && (number == nullptr || *number < 1 || *number >= next_id_)) {
    return Error{Code::kDenied, 0, "the MCP server answers a question that nobody asked", {}};
  }
  if (!for_nobody && *number != id) {
    return Transport::Next::kWait;  // too late, or again
  }
  if (message.kind == Message::Kind::kError) {
    answer.error = std::move(message.error);
  } else {
    answer.result = std::move(message.result);
  }
  return Transport::Next::kDone;
}

// Over HTTP of the modern era the end of the connection says it.
void Session::say_cancelled(std::int64_t id, const Question& question, const Error& error) {
  const bool opening = question.method == "initialize" || question.method == "server/discover";
  if (opening || (era_ == Era::kModern && transport_->kind() == Transport::Kind::kHttp)) {
    return;
  }
  Json params{{"requestId", id}, {"reason", error.message}};
  if (era_ == Era::kModern) {
    params = with_modern_meta(std::move(params));
  }
  (void)transport_->send(outgoing(notification_message("notifications/cancelled", params)),
                         {http::Clock::now() + kToSayCancelled});
}

Result<Session::Answer> Session::exchange(const Question& question, const Patience& patience) {
  if (broken_.has_value()) {
    return *broken_;
  }
  const std::int64_t id = next_id_++;
  Json params = question.params;
  if (question.progress) {
    params["_meta"]["progressToken"] = id;
  }
  if (era_ == Era::kModern) {
    params = with_modern_meta(std::move(params));
  }
  Outgoing request = outgoing(request_message(id, question.method, std::move(params)));
  if (to_text(request.message).size() > kLargestMessage) {
    return Error{Code::kResource,
                 0,
                 question.method + " is longer than " + std::to_string(kLargestMessage) + " bytes",
                 {}};
  }
  request.name = question.name;
  request.parameters = question.parameters;
  Answer answer;
  Status done = transport_->exchange(
      request,
      [&](Message message) { return take(id, question, std::move(message), answer, patience); },
      patience);
  if (done.ok()) {
    return answer;
  }
  Error error = std::move(done.error());
  if (error.code == Code::kTimeout || error.code == Code::kGone) {
    say_cancelled(id, question, error);
  }
  // Each request over HTTP has a connection of its own.
  if (!leaves_connection(error) && transport_->kind() == Transport::Kind::kStdio) {
    broken_ = explained(error);
    broken_->code = Code::kUnavailable;
  }
  return error;
}

Result<Json> Session::ask(const Question& question, const Patience& patience) {
  auto answer = exchange(question, patience);
  if (!answer.ok() && answer.error().code == Code::kConflict) {
    CARREL_TRY(open_legacy(Protocol::kLegacy, patience));
    answer = exchange(question, patience);
  }
  if (!answer.ok()) {
    return explained(std::move(answer.error()));
  }
  if (answer.value().error.has_value()) {
    return refusal(question, *answer.value().error);
  }
  CARREL_TRY(check_kind(question, answer.value().result));
  return std::move(answer.value().result);
}

}  // namespace carrel::mcp
