#pragma once

#include "base/parsed.h"

namespace carrel::egress {

// What the first bytes of a client look like.
enum class Sniffed { kNeedMore, kTls, kHttp, kOpaque };

// TLS: a handshake record. HTTP: a method of HTTP/1 and a space. The first bytes of HTTP/2 without
// TLS are opaque: nobody here reads its requests.
Sniffed sniff(Bytes bytes);

}  // namespace carrel::egress
