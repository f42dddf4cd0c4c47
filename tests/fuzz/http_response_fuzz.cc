// Answers of strangers: any bytes, in pieces of any size, are read or refused; the same bytes in
// other pieces give the same body; what is read fits what was said.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "http/response.h"

namespace {

using carrel::Status;
using carrel::http::BodyDecoder;
using carrel::http::Method;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

struct Decoded {
  bool ok = false;
  bool done = false;
  std::size_t used = 0;
  std::string body;
};

Decoded decode(BodyDecoder decoder, std::string_view bytes, std::size_t piece) {
  Decoded result;
  while (result.used < bytes.size() && !decoder.done()) {
    const std::string_view part = bytes.substr(result.used, piece);
    const auto used = decoder.feed(part, [&](std::string_view body) -> Status {
      result.body += body;
      return {};
    });
    if (!used.ok()) {
      return result;
    }
    require(used.value() <= part.size());
    require(used.value() == part.size() || decoder.done());
    result.used += used.value();
  }
  result.done = decoder.done();
  result.ok = decoder.close().ok();
  require(result.ok || !result.done);
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto end = carrel::http::end_of_head(text);
  if (!end.has_value()) {
    require(!carrel::http::parse_head(text).ok());
    return 0;
  }
  const auto head = carrel::http::parse_head(text.substr(0, *end));
  if (!head.ok()) {
    return 0;
  }
  require(head.value().status >= 100 && head.value().status <= 999);
  require(head.value().headers.size() <= carrel::http::kMostHeaders);
  for (const auto& header : head.value().headers) {
    require(!header.name.empty() && header.name.find_first_of(" \r\n:") == std::string::npos);
    require(header.value.find_first_of("\r\n") == std::string::npos);
  }
  for (const Method method : {Method::kGet, Method::kHead}) {
    const auto decoder = BodyDecoder::after(head.value(), method);
    if (!decoder.ok()) {
      continue;
    }
    const std::string_view rest = text.substr(*end);
    const Decoded whole = decode(decoder.value(), rest, rest.size() + 1);
    const Decoded pieces = decode(decoder.value(), rest, 3);
    require(whole.ok == pieces.ok && whole.done == pieces.done);
    require(!whole.ok || (whole.body == pieces.body && whole.used == pieces.used));
    if (whole.done && decoder.value().length().has_value() && method == Method::kGet) {
      require(whole.body.size() == *decoder.value().length() || head.value().status < 200 ||
              head.value().status == 204 || head.value().status == 304);
    }
  }
  return 0;
}
