#pragma once

#include <string>
#include <vector>

#include "http/client.h"
#include "mcp/transport.h"

namespace carrel::mcp {

// Where a server is, and what each request to it has beside the protocol's own headers.
struct HttpPlace {
  http::Url url;
  std::vector<http::Header> headers;
  http::ClientOptions client;
};

// Streamable HTTP: each message is a POST, whose answer is one message or a stream of them. A
// stream that ends before the answer came is not taken up again.
class HttpTransport final : public Transport {
 public:
  explicit HttpTransport(HttpPlace place) : place_(std::move(place)) {}
  // Says good-bye where there was a session.
  ~HttpTransport() override;

  [[nodiscard]] Kind kind() const override { return Kind::kHttp; }
  // kConflict: the server has forgotten the session.
  Status exchange(const Outgoing& request, const Take& take, const Patience& patience) override;
  Status send(const Outgoing& message, const Patience& patience) override;

 private:
  class Answer;

  http::Request to_request(const Outgoing& outgoing, const Patience& patience) const;
  Result<http::Response> post(const Outgoing& outgoing, const Patience& patience,
                              const http::Client::BodySink& sink) const;
  Error refusal(const http::Response& response) const;
  Status keep_session(const http::Response& response);

  HttpPlace place_;
  std::string session_;  // empty: none
  std::string version_;  // of the session
};

}  // namespace carrel::mcp
