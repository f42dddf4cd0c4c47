// Requests of HTTP/1, in two pieces: read or refused, and what is written again is the same request
// to every reader; a chunked body ends in one place, however it comes.
#include <cstddef>
#include <cstdint>
#include <string>

#include "egress/chunked_body.h"
#include "egress/http_head.h"
#include "tests/fuzz/pieces.h"

namespace {

namespace egress = carrel::egress;
using carrel::fuzz::require;

void check_written(const egress::RequestHead& head) {
  const std::string text = egress::write_request_head(head);
  const auto again =
      egress::parse_request_head({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  require(again.parsed() && again.used == text.size());
  const egress::RequestHead& copy = again.value;
  require(copy.method == head.method && copy.host == head.host && copy.port == head.port);
  require(copy.path == head.path && copy.query == head.query);
  require(copy.body.kind == head.body.kind && copy.body.length == head.body.length);
  require(copy.keeps_open == head.keeps_open && copy.upgrades == head.upgrades);
  require(copy.expects_continue == head.expects_continue);
  require(egress::write_request_head(copy) == text);
  for (const auto& header : copy.headers) {
    require(!header.name.starts_with("proxy-"));
  }
}

void check_body(egress::Bytes bytes) {
  egress::ChunkedBody whole;
  const auto all = whole.feed(bytes);
  egress::ChunkedBody pieces;
  std::size_t used = 0;
  auto last = egress::Parsed<std::size_t>::need_more();
  while (used < bytes.size() && last.needs_more()) {
    last = pieces.feed(bytes.subspan(used, 1));
    ++used;
  }
  require(all.state == last.state);
  require(!all.parsed() || all.used == used);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const egress::Bytes bytes(data, size);
  const auto result = carrel::fuzz::parse_in_pieces(bytes, egress::parse_request_head);
  (void)carrel::fuzz::parse_in_pieces(bytes, egress::parse_response_head);
  if (!result.parsed()) {
    check_body(bytes);
    return 0;
  }
  const egress::RequestHead& head = result.value;
  require(!head.method.empty() && head.method != "TRACE");
  require(head.form == egress::RequestHead::Form::kAuthority || !head.path.empty());
  // The writer adds two headers at most.
  if (head.form != egress::RequestHead::Form::kAuthority && head.headers.size() < 126) {
    check_written(head);
  }
  if (head.body.kind == egress::BodyFraming::Kind::kChunked) {
    check_body(bytes.subspan(1 + result.used));
  }
  return 0;
}
