#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "http/proxy.h"
#include "http/response.h"
#include "http/stream.h"
#include "http/tls.h"
#include "http/url.h"

namespace carrel::http {

// To whom a request may go without TLS.
enum class PlainHttp {
  kLoopbackOnly,
  kAnywhere,
};

struct ClientOptions {
  PlainHttp plain_http = PlainHttp::kLoopbackOnly;
  ProxySettings proxies;
  std::chrono::milliseconds connect_patience{15'000};
  std::chrono::milliseconds idle_patience{30'000};  // without a byte
  std::optional<TlsTrust> trust = {};               // none: that of this host, when it is needed
  // Borrowed: once it is readable, whoever waits gives up, with kGone.
  int cancel = -1;
  // The server's socket on this host: everything goes there, whatever host a URL names.
  std::string unix_socket = {};
};

struct Request {
  Method method = Method::kGet;
  Url url;
  std::vector<Header> headers = {};
  std::string authorization = {};         // for the host of `url` and no other
  std::uint64_t offset = 0;               // asks for the bytes from here on
  std::string body = {};                  // of a kPost; a header says what it is
  std::optional<Deadline> deadline = {};  // for all of it, the body of the answer included
};

struct Response {
  ResponseHead head;
  Url url;                              // the last of the redirects
  std::optional<std::uint64_t> length;  // of the body, where it was said

  [[nodiscard]] int status() const { return head.status; }
};

// Asks servers of strangers, one request after the other, over a connection that is kept as long as
// the next request goes to the same place. Not for several threads.
//
// Redirects are followed, ten at the most: never from TLS to plain HTTP, and never from elsewhere
// to this host.
//
// What may change something, a kPost or a kDelete, is never sent twice: it goes over a connection
// of its own, and a redirect of it is refused.
class Client {
 public:
  // Gets the body piece by piece, of whatever status it is.
  using BodySink = std::function<Status(const Response& response, std::string_view bytes)>;

  explicit Client(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Result<Response> send(const Request& request, const BodySink& sink);

  struct Document {
    Response response;
    std::string body;
  };
  // A connection that the server hands over to `protocol` (101), which does not block. What it said
  // after its answer is refused: nobody has spoken that protocol yet. Only on this host
  // (`unix_socket`). kUnavailable, with its status: it answers something else.
  Result<UniqueFd> upgrade(const Request& request, const std::string& protocol);

  // The whole body, of at most `limit` bytes and within `patience`.
  Result<Document> fetch(const Request& request, std::size_t limit,
                         std::chrono::milliseconds patience);

 private:
  struct Connection;

  Result<Response> send_once(const Request& request, const BodySink& sink);
  Result<std::unique_ptr<Connection>> connect(const Request& request);
  Status open_tunnel(Stream& stream, const Url& url, const Proxy& proxy, Deadline deadline);
  Result<ResponseHead> exchange(Connection& connection, const Request& request);
  Status read_body(Connection& connection, const Request& request, const Response& response,
                   BodyDecoder& decoder, const BodySink& sink);

  ClientOptions options_;
  std::unique_ptr<Connection> kept_;
};

}  // namespace carrel::http
