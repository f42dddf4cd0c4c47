#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "http/server_connection.h"
#include "manager/manager.h"
#include "server/json_input.h"
#include "server/traces.h"

namespace carrel::server {

struct Service;

// The query of a target, decoded. A name twice, or with a byte that has no place there, is refused.
using Query = std::map<std::string, std::string>;
Result<Query> parse_query(std::string_view text);

// One request on its way through its handler.
struct Request {
  Service& service;
  http::ServerConnection& connection;
  int socket;  // of the client, to see whether it is still there
  manager::Caller caller;
  std::vector<std::string> arguments;  // of the path, in its order
  Query query;
  Json body;  // where the route wants JSON
  TraceContext trace = {};

  [[nodiscard]] const std::string& id() const { return arguments.front(); }
};

// Answers with JSON, or with nothing (204).
// JSON, in which what is no UTF-8 was replaced.
std::string to_text(const Json& body);
Status reply(Request& request, int status, const Json& body);
Status reply_text(Request& request, int status, std::string json);
Status reply_nothing(Request& request);
Status reply_bytes(Request& request, std::string_view type, std::string bytes);
// Begins an answer of events, which has a sign of life at least as often as this.
inline constexpr std::chrono::seconds kSilence{15};
Status begin_events(Request& request);

// An error as a client gets it: the status that belongs to its code, and problem details (RFC
// 9457).
int status_of(Code code);
http::Answer problem(const Error& error);
http::Answer problem(int status, std::string_view code, const std::string& detail);

// A number in the query, or `otherwise`; kInvalid for what is none or too large.
Result<std::uint64_t> number_in(const Query& query, const std::string& name,
                                std::uint64_t otherwise, std::uint64_t most);

// Becomes readable when the client has gone, for whoever waits for something else.
Result<UniqueFd> watch_client(int socket);
bool client_left(const UniqueFd& watch);

}  // namespace carrel::server
