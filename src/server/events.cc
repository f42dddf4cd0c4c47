#include <poll.h>

#include <string>

#include "http/event_stream.h"
#include "server/event_tail.h"
#include "server/handlers.h"
#include "server/service.h"

// What happens to sandboxes, from the log that everybody writes.
namespace carrel::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 200;

// The line as an event, if it is one of a sandbox that the caller has and asked for.
std::string event_of(Request& request, const std::string& line, const std::string& wanted) {
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object()) {
    return {};
  }
  const std::string id = object.value("sandbox", "");
  if (!wanted.empty() && id != wanted) {
    return {};
  }
  if (!request.caller.is_operator() && !request.service.manager->find(request.caller, id).ok()) {
    return {};
  }
  return http::write_event({"", object.value("event", "event"), line});
}

}  // namespace

Status get_events(Request& request) {
  const std::string& wanted = request.query["sandbox"];
  const std::string& past = request.query["past"];
  if (!past.empty() && past != "true" && past != "false") {
    return Error{Code::kInvalid, 0, "'past' must be true or false", {}};
  }
  if (!wanted.empty()) {
    CARREL_TRY(request.service.manager->find(request.caller, wanted));
  }
  CARREL_ASSIGN(const UniqueFd watch, watch_client(request.socket));
  EventTail tail(request.service.manager->home(),
                 past == "true" ? EventTail::From::kStart : EventTail::From::kEnd);
  CARREL_TRY(begin_events(request));
  CARREL_TRY(request.connection.send(http::kNoEvent));
  Clock::time_point said = Clock::now();
  while (!request.service.stopping) {
    for (const std::string& line : tail.next()) {
      const std::string event = event_of(request, line, wanted);
      if (!event.empty()) {
        said = Clock::now();
        CARREL_TRY(request.connection.send(event));
      }
    }
    pollfd wait{watch.get(), POLLIN, 0};
    if (::poll(&wait, 1, kTickMs) > 0) {
      return Error{Code::kGone, 0, "the client has left", {}};
    }
    if (Clock::now() - said > kSilence) {
      said = Clock::now();
      CARREL_TRY(request.connection.send(http::kNoEvent));
    }
  }
  return request.connection.finish();
}

}  // namespace carrel::server
