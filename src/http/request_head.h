#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/parsed.h"
#include "http/response.h"
#include "policy/host.h"

namespace carrel::http {

inline constexpr std::size_t kLargestRequestHead = 32U << 10;

struct BodyFraming {
  enum class Kind { kNone, kLength, kChunked };
  Kind kind = Kind::kNone;
  std::uint64_t length = 0;
};

struct RequestHead {
  enum class Form {
    kOrigin,     // "/path"
    kAbsolute,   // "http://host/path", to a proxy
    kAuthority,  // "host:port", of CONNECT
    kAsterisk,   // "*", of OPTIONS
  };
  std::string method;
  Form form = Form::kOrigin;
  policy::Host host;            // of the target and of the Host header, which agree
  std::uint16_t port = 0;       // 0: none was given
  std::string path;             // without the query; empty for kAuthority, "*" for kAsterisk
  std::string query;            // with its '?'; can be empty
  int minor_version = 1;        // of HTTP/1
  std::vector<Header> headers;  // names in lower case
  BodyFraming body;
  bool keeps_open = true;         // the client wants to send another request
  bool expects_continue = false;  // "Expect: 100-continue"
  bool upgrades = false;          // asks for a WebSocket; other upgrades are not passed on

  [[nodiscard]] const std::string* find(std::string_view name) const;
};

// The head of an HTTP/1 request, strictly: whatever two servers could read in two ways is refused.
// No bare CR or LF, no folded line, no space before a colon, exactly one Host (HTTP/1.0 may have
// none if its target is absolute), which is the target's if that has one; not both Content-Length
// and Transfer-Encoding, neither of them twice, no coding but chunked; user names, fragments,
// control and non-ASCII characters in a target are refused, and so is TRACE.
Parsed<RequestHead> parse_request_head(Bytes bytes);

// The head as it goes to a server, with an origin-form target: what was read and nothing else.
// Headers that are for one hop (Proxy-*, Connection and what it names) are left out.
std::string write_request_head(const RequestHead& head);

// The head of a response, strictly; `used` is where its body begins. See http::BodyDecoder for
// that.
Parsed<ResponseHead> parse_response_head(Bytes bytes);

}  // namespace carrel::http
