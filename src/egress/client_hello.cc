#include "egress/client_hello.h"

#include <algorithm>
#include <bitset>
#include <memory>

#include "base/byte_reader.h"

namespace carrel::egress {
namespace {

using Refusable = std::string_view;  // why it is refused; empty: it is not

constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kMessageHeader = 4;
constexpr std::size_t kLargestRecord = 1U << 14U;
constexpr std::size_t kMostRecords = 64;
constexpr std::uint8_t kHandshake = 22;
constexpr std::uint8_t kClientHello = 1;

constexpr std::uint16_t kServerName = 0;
constexpr std::uint16_t kProtocols = 16;
constexpr std::uint16_t kEncryptedHello = 0xfe0d;
constexpr std::uint16_t kFirstDraftOfIt = 0xfe08;
constexpr std::uint16_t kEncryptedName = 0xffce;

Refusable read_server_name(Bytes bytes, ClientHello& hello) {
  ByteReader outer(bytes);
  ByteReader list(outer.take(outer.u16()));
  const std::uint8_t type = list.u8();
  const Bytes name = list.take(list.u16());
  if (!outer.done() || !list.done() || type != 0) {
    return "the server's name in TLS is not one name";
  }
  auto host = policy::canonical_host(as_text(name));
  if (!host.ok()) {
    return "the server's name in TLS is not a host name";
  }
  hello.server_name = std::move(host.value());
  return {};
}

Refusable read_protocols(Bytes bytes, ClientHello& hello) {
  ByteReader outer(bytes);
  ByteReader list(outer.take(outer.u16()));
  if (!outer.done() || list.left() == 0) {
    return "the protocols in TLS have a wrong length";
  }
  while (list.left() > 0) {
    const Bytes name = list.take(list.u8());
    if (!list.ok() || name.empty()) {
      return "a protocol in TLS has a wrong length";
    }
    hello.protocols.emplace_back(as_text(name));
  }
  return {};
}

Refusable read_extensions(ByteReader extensions, ClientHello& hello) {
  const auto seen = std::make_unique<std::bitset<65536>>();
  while (extensions.left() > 0) {
    const std::uint16_t type = extensions.u16();
    const Bytes data = extensions.take(extensions.u16());
    if (!extensions.ok()) {
      return "an extension of TLS has a wrong length";
    }
    if (seen->test(type)) {
      return "an extension of TLS is there twice";
    }
    seen->set(type);
    Refusable refusal;
    if (type == kServerName) {
      refusal = read_server_name(data, hello);
    } else if (type == kProtocols) {
      refusal = read_protocols(data, hello);
    } else if ((type >= kFirstDraftOfIt && type <= kEncryptedHello) || type == kEncryptedName) {
      hello.encrypted_hello = true;
    }
    if (!refusal.empty()) {
      return refusal;
    }
  }
  return {};
}

Refusable read_message(Bytes message, ClientHello& hello) {
  ByteReader reader(message);
  const std::uint16_t version = reader.u16();
  reader.take(32);  // random
  const std::size_t session = reader.take(reader.u8()).size();
  const std::size_t ciphers = reader.take(reader.u16()).size();
  const std::size_t compressions = reader.take(reader.u8()).size();
  if (!reader.ok() || (version >> 8U) != 3 || session > 32 || ciphers == 0 || ciphers % 2 != 0 ||
      compressions == 0) {
    return "the ClientHello is not one";
  }
  if (reader.left() == 0) {
    return {};
  }
  ByteReader extensions(reader.take(reader.u16()));
  if (!reader.done()) {
    return "the extensions of TLS have a wrong length";
  }
  return read_extensions(extensions, hello);
}

}  // namespace

Parsed<ClientHello> parse_client_hello(Bytes bytes) {
  using Result = Parsed<ClientHello>;
  std::vector<std::uint8_t> message;  // with its header, from as many records as it takes
  std::size_t used = 0;
  for (std::size_t records = 0; records < kMostRecords; ++records) {
    const Bytes rest = bytes.subspan(used);
    if ((!rest.empty() && rest[0] != kHandshake) || (rest.size() > 1 && rest[1] != 3)) {
      return Result::refused("the first bytes are not a handshake of TLS");
    }
    if (rest.size() < kRecordHeader) {
      return Result::need_more();
    }
    const std::size_t size = (std::size_t{rest[3]} << 8U) | rest[4];
    if (size == 0 || size > kLargestRecord) {
      return Result::refused("a record of TLS has a wrong length");
    }
    // What is there of the record, to refuse it as early as can be.
    const Bytes body = rest.subspan(kRecordHeader);
    const Bytes there = body.first(std::min(body.size(), size));
    message.insert(message.end(), there.begin(), there.end());
    if (!message.empty() && message[0] != kClientHello) {
      return Result::refused("the first message of TLS is not a ClientHello");
    }
    std::size_t wanted = kMessageHeader;
    if (message.size() >= kMessageHeader) {
      ByteReader header(Bytes(message).subspan(1));
      wanted += header.u24();
      if (wanted > kLargestClientHello) {
        return Result::refused("the ClientHello is larger than 16k");
      }
    }
    if (there.size() < size) {
      return Result::need_more();
    }
    used += kRecordHeader + size;
    if (message.size() > wanted && message.size() >= kMessageHeader) {
      return Result::refused("something follows the ClientHello in its record");
    }
    if (message.size() == wanted && wanted > kMessageHeader) {
      ClientHello hello;
      const Refusable refusal = read_message(Bytes(message).subspan(kMessageHeader), hello);
      return refusal.empty() ? Result::done(std::move(hello), used) : Result::refused(refusal);
    }
  }
  return Result::refused("the ClientHello is in too many records");
}

}  // namespace carrel::egress
