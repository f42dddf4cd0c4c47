#include "http/client.h"

#include <algorithm>
#include <array>

#include "http/tcp.h"

namespace carrel::http {

namespace {

constexpr int kMostRedirects = 10;
constexpr int kMostInterimHeads = 8;
constexpr std::size_t kPiece = 64U << 10;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string_view name_of(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kDelete:
      break;
  }
  return "DELETE";
}

bool changes_something(Method method) {
  return method == Method::kPost || method == Method::kDelete;
}

bool is_line(std::string_view text) {
  for (const char c : text) {
    if (c < ' ' || c == 0x7f) {
      return false;
    }
  }
  return true;
}

// The end of a wait that begins now.
Deadline patience_for(const Request& request, std::chrono::milliseconds patience) {
  const Deadline deadline = Clock::now() + patience;
  return request.deadline.has_value() ? std::min(deadline, *request.deadline) : deadline;
}

// Reads from `stream` until `buffer` begins with a whole head, and takes that out of it.
// A head that comes byte by byte has no longer than one that comes at once.
Result<ResponseHead> read_head(Stream& stream, std::string& buffer, Deadline deadline) {
  std::array<char, 8192> piece;
  std::optional<std::size_t> end = end_of_head(buffer);
  while (!end.has_value()) {
    if (buffer.size() > kLargestHead) {
      return Error{Code::kDenied, 0, "the answer's head is longer than 64 KiB", {}};
    }
    CARREL_ASSIGN(const std::size_t size, stream.read(piece, deadline));
    if (size == 0) {
      return Error{Code::kUnavailable, 0, "the connection ended before the answer", {}};
    }
    buffer.append(piece.data(), size);
    end = end_of_head(buffer);
  }
  auto head = parse_head(std::string_view(buffer).substr(0, *end));
  buffer.erase(0, *end);
  return head;
}

// "GET /path HTTP/1.1" and its headers. `target` is an absolute URL when a proxy reads it.
Result<std::string> head_of(const Request& request, const std::string& target,
                            const std::string& proxy_authorization) {
  std::vector<Header> headers = {
      {"Host", authority(request.url)}, {"User-Agent", "carrel"}, {"Accept-Encoding", "identity"}};
  headers.insert(headers.end(), request.headers.begin(), request.headers.end());
  if (!request.authorization.empty()) {
    headers.push_back({"Authorization", request.authorization});
  }
  if (!proxy_authorization.empty()) {
    headers.push_back({"Proxy-Authorization", proxy_authorization});
  }
  if (request.offset > 0) {
    headers.push_back({"Range", "bytes=" + std::to_string(request.offset) + "-"});
  }
  if (request.method == Method::kPost) {
    headers.push_back({"Content-Length", std::to_string(request.body.size())});
  }
  std::string text = std::string(name_of(request.method)) + " " + target + " HTTP/1.1\r\n";
  for (const Header& header : headers) {
    if (!is_line(header.name) || !is_line(header.value)) {
      return Error{Code::kInvalid, 0, "a header of a request would be more than one line", {}};
    }
    text += header.name + ": " + header.value + "\r\n";
  }
  return text + "\r\n";
}

bool keeps_connection(const ResponseHead& head) {
  const std::string* word = head.find("connection");
  return head.minor_version == 1 && (word == nullptr || (*word != "close" && *word != "Close"));
}

// Where a redirect leads, if it may.
Result<Url> follow(const Url& from, const ResponseHead& head) {
  const std::string* location = head.find("location");
  if (location == nullptr) {
    return Error{Code::kDenied, 0, to_string(from) + " redirects to nowhere", {}};
  }
  CARREL_ASSIGN(Url to, resolve_url(from, *location));
  if (from.scheme == Scheme::kHttps && to.scheme == Scheme::kHttp) {
    return Error{Code::kDenied,
                 0,
                 to_string(from) + " redirects to " + to_string(to) + ", which is not encrypted",
                 {}};
  }
  if (leads_here(to.host) && !leads_here(from.host)) {
    return Error{Code::kDenied, 0, to_string(from) + " redirects to this host itself", {}};
  }
  return to;
}

}  // namespace

struct Client::Connection {
  Url origin;
  std::optional<Proxy> proxy;  // that reads the requests
  std::unique_ptr<Stream> stream;
  std::string buffer;     // read and not used yet
  bool was_used = false;  // for a request before
};

Client::Client(ClientOptions options) : options_(std::move(options)) {}
Client::~Client() = default;

// A tunnel is for the bytes of TLS alone: what the proxy would send before them is refused.
Status Client::open_tunnel(Stream& stream, const Url& url, const Proxy& proxy, Deadline deadline) {
  const bool bare = url.host.find(':') != std::string::npos;
  const std::string where =
      (bare ? "[" + url.host + "]" : url.host) + ":" + std::to_string(url.port);
  std::string text = "CONNECT " + where + " HTTP/1.1\r\nHost: " + where + "\r\n";
  if (!proxy.authorization.empty()) {
    text += "Proxy-Authorization: " + proxy.authorization + "\r\n";
  }
  CARREL_TRY(stream.write(text + "\r\n", deadline));
  std::string buffer;
  CARREL_ASSIGN(const ResponseHead head, read_head(stream, buffer, deadline));
  if (head.status / 100 != 2 || !buffer.empty()) {
    return Error{Code::kUnavailable, 0,
                 "the proxy " + proxy.host + " does not connect to " + where + " (status " +
                     std::to_string(head.status) + ")",
                 "no_proxy names the hosts that are reached without it"};
  }
  return {};
}

Result<std::unique_ptr<Client::Connection>> Client::connect(const Request& request) {
  const Url& url = request.url;
  if (!options_.unix_socket.empty()) {
    auto connection = std::make_unique<Connection>();
    connection->origin = url;
    CARREL_ASSIGN(connection->stream,
                  dial_unix(options_.unix_socket, patience_for(request, options_.connect_patience),
                            options_.cancel));
    return connection;
  }
  if (url.scheme == Scheme::kHttp && options_.plain_http == PlainHttp::kLoopbackOnly &&
      !is_loopback(url.host)) {
    return Error{Code::kDenied, 0, to_string(url) + " is not encrypted", {}};
  }
  auto connection = std::make_unique<Connection>();
  connection->origin = url;
  CARREL_ASSIGN(connection->proxy, proxy_for(url, options_.proxies));
  const std::optional<Proxy>& proxy = connection->proxy;
  CARREL_ASSIGN(
      connection->stream,
      dial(
          proxy.has_value() ? proxy->host : url.host, proxy.has_value() ? proxy->port : url.port,
          {.each = options_.connect_patience, .all = request.deadline, .cancel = options_.cancel}));
  if (url.scheme == Scheme::kHttp) {
    return connection;
  }
  if (proxy.has_value()) {
    CARREL_TRY(open_tunnel(*connection->stream, url, *proxy,
                           patience_for(request, options_.connect_patience)));
    connection->proxy.reset();
  }
  if (!options_.trust.has_value()) {
    CARREL_ASSIGN(options_.trust, TlsTrust::of_this_host());
  }
  CARREL_ASSIGN(connection->stream,
                start_tls(std::move(connection->stream), *options_.trust, url.host,
                          patience_for(request, options_.connect_patience)));
  return connection;
}

Result<ResponseHead> Client::exchange(Connection& connection, const Request& request) {
  const std::optional<Proxy>& proxy = connection.proxy;
  const std::string target = proxy.has_value()
                                 ? "http://" + authority(request.url) + request.url.target
                                 : request.url.target;
  CARREL_ASSIGN(const std::string text,
                head_of(request, target, proxy.has_value() ? proxy->authorization : ""));
  CARREL_TRY(
      connection.stream->write(text + request.body, patience_for(request, options_.idle_patience)));
  for (int i = 0; i < kMostInterimHeads; ++i) {
    CARREL_ASSIGN(ResponseHead head, read_head(*connection.stream, connection.buffer,
                                               patience_for(request, options_.idle_patience)));
    if (head.status / 100 != 1) {
      return head;
    }
    if (head.status == 101) {
      break;
    }
  }
  return Error{Code::kDenied, 0, "the server does not come to its answer", {}};
}

Status Client::read_body(Connection& connection, const Request& request, const Response& response,
                         BodyDecoder& decoder, const BodySink& sink) {
  const BodyDecoder::Sink pass = [&](std::string_view bytes) { return sink(response, bytes); };
  std::string& buffer = connection.buffer;
  std::string piece(kPiece, '\0');
  while (!decoder.done()) {
    if (buffer.empty()) {
      CARREL_ASSIGN(const std::size_t size,
                    connection.stream->read(piece, patience_for(request, options_.idle_patience)));
      if (size == 0) {
        return decoder.close();
      }
      CARREL_ASSIGN(const std::size_t used,
                    decoder.feed(std::string_view(piece).substr(0, size), pass));
      buffer.assign(piece, used, size - used);
    } else {
      CARREL_ASSIGN(const std::size_t used, decoder.feed(buffer, pass));
      buffer.erase(0, used);
    }
  }
  return {};
}

// One request without redirects. A kept connection that the server has ended meanwhile is replaced.
Result<Response> Client::send_once(const Request& request, const BodySink& sink) {
  std::unique_ptr<Connection> connection = std::move(kept_);
  if (connection != nullptr &&
      (!same_origin(connection->origin, request.url) || changes_something(request.method))) {
    connection.reset();
  }
  if (connection == nullptr) {
    CARREL_ASSIGN(connection, connect(request));
  }
  auto head = exchange(*connection, request);
  if (!head.ok() && head.error().code == Code::kUnavailable && connection->was_used) {
    CARREL_ASSIGN(connection, connect(request));
    head = exchange(*connection, request);
  }
  if (!head.ok()) {
    return head.error();
  }
  CARREL_ASSIGN(BodyDecoder decoder, BodyDecoder::after(head.value(), request.method));
  Response response{std::move(head.value()), request.url, decoder.length()};
  const std::string* encoding = response.head.find("content-encoding");
  if (encoding != nullptr && *encoding != "identity") {
    return Error{Code::kDenied, 0, "the answer is compressed, which nobody asked for", {}};
  }
  const bool again = keeps_connection(response.head) && !decoder.until_close();
  CARREL_TRY(read_body(*connection, request, response, decoder, sink));
  // Bytes after the body belong to no request.
  if (again && connection->buffer.empty()) {
    connection->was_used = true;
    kept_ = std::move(connection);
  }
  return response;
}

Result<Response> Client::send(const Request& request, const BodySink& sink) {
  Request next = request;
  for (int i = 0; i <= kMostRedirects; ++i) {
    std::size_t dropped = 0;
    auto response = send_once(next, [&](const Response& from, std::string_view bytes) -> Status {
      if (!is_redirect(from.status())) {
        return sink(from, bytes);
      }
      dropped += bytes.size();
      return dropped <= kLargestHead
                 ? Status()
                 : Error{Code::kDenied, 0, "a redirect has a body that does not end", {}};
    });
    if (!response.ok()) {
      Error error = std::move(response.error());
      error.message = "ask " + to_string(next.url) + ": " + error.message;
      return error;
    }
    if (!is_redirect(response.value().status())) {
      return response;
    }
    if (changes_something(request.method)) {
      return Error{Code::kDenied, 0,
                   to_string(request.url) + " redirects a " + std::string(name_of(request.method)) +
                       ", which is not followed",
                   "name the address that it leads to"};
    }
    CARREL_ASSIGN(const Url to, follow(next.url, response.value().head));
    if (!same_origin(to, request.url)) {
      next.authorization.clear();
    }
    next.url = to;
  }
  return Error{Code::kDenied, 0, to_string(request.url) + " redirects without end", {}};
}

Result<UniqueFd> Client::upgrade(const Request& request, const std::string& protocol) {
  if (options_.unix_socket.empty()) {
    return Error{Code::kInvalid, 0, "only a connection on this host is upgraded", {}};
  }
  Request asked = request;
  asked.headers.push_back({"Connection", "Upgrade"});
  asked.headers.push_back({"Upgrade", protocol});
  CARREL_ASSIGN(const std::string text, head_of(asked, asked.url.target, ""));
  const Deadline deadline = patience_for(asked, options_.idle_patience);
  CARREL_ASSIGN(auto stream, dial_unix(options_.unix_socket, deadline, options_.cancel));
  CARREL_TRY(stream->write(text + asked.body, deadline));
  std::string after;
  CARREL_ASSIGN(const ResponseHead head, read_head(*stream, after, deadline));
  if (head.status != 101) {
    return Error{
        Code::kUnavailable,
        0,
        "the server did not upgrade the connection (status " + std::to_string(head.status) + ")",
        {}};
  }
  const std::string* const word = head.find("upgrade");
  if (word == nullptr || count_headers(head.headers, "upgrade") != 1 ||
      !std::equal(word->begin(), word->end(), protocol.begin(), protocol.end(),
                  [](char a, char b) { return (a | 0x20) == (b | 0x20); }) ||
      !after.empty()) {
    return Error{Code::kDenied, 0, "the server upgraded the connection to something else", {}};
  }
  return stream->release();
}

Result<Client::Document> Client::fetch(const Request& request, std::size_t limit,
                                       std::chrono::milliseconds patience) {
  std::string body;
  const Deadline deadline = Clock::now() + patience;
  CARREL_ASSIGN(
      Response response, send(request, [&](const Response& from, std::string_view bytes) -> Status {
        if (body.size() + bytes.size() > limit) {
          return Error{Code::kResource,
                       0,
                       to_string(from.url) + " is longer than " + std::to_string(limit) + " bytes",
                       {}};
        }
        if (Clock::now() > deadline) {
          return Error{Code::kTimeout, 0, to_string(from.url) + " takes too long", {}};
        }
        body += bytes;
        return {};
      }));
  return Document{std::move(response), std::move(body)};
}

}  // namespace carrel::http
