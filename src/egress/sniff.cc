#include "egress/sniff.h"

#include <algorithm>
#include <array>

namespace carrel::egress {
namespace {

constexpr std::array<std::string_view, 9> kMethods = {
    "GET ", "HEAD ", "POST ", "PUT ", "PATCH ", "DELETE ", "OPTIONS ", "CONNECT ", "TRACE "};

// The one begins with the other, whichever is longer.
bool agree(std::string_view text, std::string_view word) {
  const std::size_t size = std::min(text.size(), word.size());
  return text.substr(0, size) == word.substr(0, size);
}

}  // namespace

Sniffed sniff(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  // A handshake record of SSL 3.0 or any TLS.
  constexpr std::string_view kRecord = "\x16\x03";
  if (agree(text, kRecord)) {
    return text.size() >= kRecord.size() ? Sniffed::kTls : Sniffed::kNeedMore;
  }
  for (const std::string_view method : kMethods) {
    if (agree(text, method)) {
      return text.size() >= method.size() ? Sniffed::kHttp : Sniffed::kNeedMore;
    }
  }
  return Sniffed::kOpaque;
}

}  // namespace carrel::egress
