// Requests of HTTP/1, in two pieces: read or refused, and what is written again is the same request
// to every reader; a chunked body ends in one place, however it comes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "http/chunked_body.h"
#include "http/request_head.h"
#include "tests/fuzz/pieces.h"

namespace {

namespace http = carrel::http;
using carrel::fuzz::require;

void check_written(const http::RequestHead& head) {
  const std::string text = http::write_request_head(head);
  const auto again =
      http::parse_request_head({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  require(again.parsed() && again.used == text.size());
  const http::RequestHead& copy = again.value;
  require(copy.method == head.method && copy.host == head.host && copy.port == head.port);
  require(copy.path == head.path && copy.query == head.query);
  require(copy.body.kind == head.body.kind && copy.body.length == head.body.length);
  require(copy.keeps_open == head.keeps_open && copy.upgrades == head.upgrades);
  require(copy.expects_continue == head.expects_continue);
  require(http::write_request_head(copy) == text);
  for (const auto& header : copy.headers) {
    require(!header.name.starts_with("proxy-"));
  }
}

void check_body(carrel::Bytes bytes) {
  http::ChunkedBody whole;
  const auto all = whole.feed(bytes);
  http::ChunkedBody pieces;
  std::size_t used = 0;
  auto last = carrel::Parsed<std::size_t>::need_more();
  while (used < bytes.size() && last.needs_more()) {
    last = pieces.feed(bytes.subspan(used, 1));
    ++used;
  }
  require(all.state == last.state);
  require(!all.parsed() || all.used == used);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const carrel::Bytes bytes(data, size);
  const auto result = carrel::fuzz::parse_in_pieces(bytes, http::parse_request_head);
  (void)carrel::fuzz::parse_in_pieces(bytes, http::parse_response_head);
  if (!result.parsed()) {
    check_body(bytes);
    return 0;
  }
  const http::RequestHead& head = result.value;
  require(!head.method.empty() && head.method != "TRACE");
  require(head.form == http::RequestHead::Form::kAuthority || !head.path.empty());
  // The writer adds two headers at most.
  if (head.form != http::RequestHead::Form::kAuthority && head.headers.size() < 126) {
    check_written(head);
  }
  if (head.body.kind == http::BodyFraming::Kind::kChunked) {
    check_body(bytes.subspan(1 + result.used));
  }
  return 0;
}
