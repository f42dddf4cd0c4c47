#include "server/outgoing.h"

#include <array>
#include <memory>
#include <utility>

#include "http/response.h"
#include "http/tcp.h"
#include "http/tls.h"

namespace carrel::server {
namespace {

using http::Clock;
using std::chrono::milliseconds;

Result<std::unique_ptr<http::Stream>> connect(const http::Url& url, milliseconds patience) {
  CARREL_ASSIGN(std::unique_ptr<http::Stream> stream,
                http::dial(url.host, url.port, {.each = patience, .all = Clock::now() + patience}));
  if (url.scheme == http::Scheme::kHttp) {
    return stream;
  }
  CARREL_ASSIGN(const http::TlsTrust trust, http::TlsTrust::of_this_host());
  return http::start_tls(std::move(stream), trust, url.host, Clock::now() + patience);
}

Result<int> read_status(http::Stream& stream, milliseconds patience) {
  std::string head;
  std::array<char, 4096> piece{};
  const http::Deadline deadline = Clock::now() + patience;
  for (;;) {
    if (const auto end = http::end_of_head(head); end.has_value()) {
      CARREL_ASSIGN(const http::ResponseHead parsed, http::parse_head(head.substr(0, *end)));
      return parsed.status;
    }
    CARREL_ASSIGN(const std::size_t size, stream.read(piece, deadline));
    if (size == 0 || head.size() > http::kLargestHead) {
      return Error{Code::kUnavailable, 0, "the receiver does not answer", {}};
    }
    head.append(piece.data(), size);
  }
}

}  // namespace

Result<http::Url> parse_receiver(const std::string& url, const std::string& what) {
  CARREL_ASSIGN(http::Url parsed, http::parse_url(url));
  if (parsed.scheme == http::Scheme::kHttp && !http::is_loopback(parsed.host)) {
    return Error{Code::kDenied, 0,
                 what + " would go to '" + http::to_string(parsed) + "' unencrypted", "use https"};
  }
  return parsed;
}

namespace {

Result<int> send_json(const http::Url& url, const std::vector<http::Header>& headers,
                      const std::string& body, milliseconds patience) {
  CARREL_ASSIGN(const std::unique_ptr<http::Stream> stream, connect(url, patience));
  std::string head =
      "POST " + url.target + " HTTP/1.1\r\nhost: " + http::authority(url) +
      "\r\ncontent-type: application/json\r\ncontent-length: " + std::to_string(body.size()) +
      "\r\nuser-agent: carrel\r\nconnection: close\r\n";
  for (const http::Header& header : headers) {
    head += header.name + ": " + header.value + "\r\n";
  }
  CARREL_TRY(stream->write(head + "\r\n" + body, Clock::now() + patience));
  return read_status(*stream, patience);
}

}  // namespace

Told post_json(const http::Url& url, const std::vector<http::Header>& headers,
               const std::string& body, milliseconds patience) {
  const auto status = send_json(url, headers, body, patience);
  if (!status.ok()) {
    return Told::kLater;
  }
  const bool for_good = status.value() / 100 == 4 && status.value() != 408 && status.value() != 429;
  return status.value() / 100 == 2 ? Told::kTaken : for_good ? Told::kRefused : Told::kLater;
}

}  // namespace carrel::server
