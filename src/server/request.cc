#include "server/request.h"

#include <poll.h>
#include <sys/epoll.h>

#include <charconv>

#include "base/code_name.h"
#include "base/utf8.h"

namespace carrel::server {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

Result<std::string> decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return Error{Code::kInvalid, 0, "a '%' in the query without two digits", {}};
      }
      decoded += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  if (decoded.find('\0') != std::string::npos) {
    return Error{Code::kInvalid, 0, "a NUL byte in the query", {}};
  }
  return decoded;
}

std::vector<http::Header> safe_headers() {
  return {{"cache-control", "no-store"}, {"x-content-type-options", "nosniff"}};
}

std::vector<http::Header> headers_for(std::string_view type) {
  std::vector<http::Header> headers = safe_headers();
  headers.push_back({"content-type", std::string(type)});
  return headers;
}

}  // namespace

std::string to_text(const Json& body) {
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Query> parse_query(std::string_view text) {
  Query query;
  text.remove_prefix(text.starts_with('?') ? 1 : 0);
  while (!text.empty()) {
    const std::size_t end = text.find('&');
    const std::string_view pair = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (pair.empty()) {
      continue;
    }
    const std::size_t equals = pair.find('=');
    CARREL_ASSIGN(std::string name, decode(pair.substr(0, equals)));
    CARREL_ASSIGN(
        std::string value,
        decode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1)));
    if (!query.emplace(std::move(name), std::move(value)).second) {
      return Error{Code::kInvalid, 0, "a name is twice in the query", {}};
    }
  }
  return query;
}

Status begin_events(Request& request) {
  return request.connection.begin(200, {{"content-type", "text/event-stream"},
                                        {"cache-control", "no-store"},
                                        {"x-content-type-options", "nosniff"}});
}

Status reply(Request& request, int status, const Json& body) {
  return reply_text(request, status, to_text(body));
}

Status reply_text(Request& request, int status, std::string json) {
  return request.connection.answer({status, headers_for("application/json"), json + "\n"});
}

Status reply_nothing(Request& request) {
  return request.connection.answer({204, safe_headers(), {}});
}

Status reply_bytes(Request& request, std::string_view type, std::string bytes) {
  return request.connection.answer({200, headers_for(type), std::move(bytes)});
}

int status_of(Code code) {
  switch (code) {
    case Code::kInvalid:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kConflict:
      return 409;
    case Code::kDenied:
      return 403;
    case Code::kUnsupported:
      return 501;
    case Code::kUnavailable:
      return 503;
    case Code::kResource:
      return 429;
    case Code::kTimeout:
      return 504;
    case Code::kGone:
      return 410;
    case Code::kSystem:
      break;
  }
  return 500;
}

http::Answer problem(int status, std::string_view code, const std::string& detail) {
  Json body;
  body["type"] = "urn:carrel:error:" + std::string(code);
  body["title"] = std::string(http::status_words(status));
  body["status"] = status;
  body["code"] = std::string(code);
  body["detail"] = replace_invalid_utf8(detail);
  http::Answer answer{status, headers_for("application/problem+json"), to_text(body) + "\n"};
  if (status == 401) {
    answer.headers.push_back({"www-authenticate", "Bearer"});
  }
  if (status == 429 || status == 503) {
    answer.headers.push_back({"retry-after", "1"});
  }
  return answer;
}

http::Answer problem(const Error& error) {
  return problem(status_of(error.code), code_name(error.code), error.to_string());
}

Result<std::uint64_t> number_in(const Query& query, const std::string& name,
                                std::uint64_t otherwise, std::uint64_t most) {
  const auto found = query.find(name);
  if (found == query.end()) {
    return otherwise;
  }
  const std::string& text = found->second;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > most) {
    return Error{Code::kInvalid,
                 0,
                 "'" + name + "' must be a whole number from 0 to " + std::to_string(most),
                 {}};
  }
  return value;
}

Result<UniqueFd> watch_client(int socket) {
  UniqueFd watch(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLRDHUP;
  if (!watch.valid() || ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    return system_error("watch the client");
  }
  return watch;
}

bool client_left(const UniqueFd& watch) {
  pollfd wait{watch.get(), POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace carrel::server
