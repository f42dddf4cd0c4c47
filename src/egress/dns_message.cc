#include "egress/dns_message.h"

#include <algorithm>

#include "base/byte_reader.h"
#include "dns/name.h"

namespace carrel::egress {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::uint16_t kResponse = 0x8000;
constexpr std::uint16_t kOperation = 0x7800;
constexpr std::uint16_t kTruncated = 0x0200;
constexpr std::uint16_t kRecursionDesired = 0x0100;
constexpr std::uint16_t kRecursionAvailable = 0x0080;
constexpr std::size_t kSmallDatagram = 512;
constexpr std::size_t kLargeDatagram = 1232;  // what no path of today cuts in two
constexpr std::size_t kLargestTcpMessage = 65535;
constexpr std::size_t kOptRecord = 11;
constexpr std::uint16_t kQuestionPointer = 0xc00c;  // to the name at the end of the header

// The EDNS record that may end a query.
std::optional<std::uint16_t> read_opt(Bytes bytes) {
  ByteReader reader(bytes);
  const std::uint8_t root = reader.u8();
  const std::uint16_t type = reader.u16();
  const std::uint16_t size = reader.u16();
  reader.u32();  // code, version and flags
  reader.take(reader.u16());
  if (!reader.done() || root != 0 || type != static_cast<std::uint16_t>(dns::RecordType::kOpt)) {
    return std::nullopt;
  }
  return size;
}

void append_header(std::vector<std::uint8_t>& message, std::uint16_t id, unsigned flags,
                   std::size_t questions) {
  dns::append_u16(message, id);
  dns::append_u16(message, flags);
  dns::append_u16(message, questions);
  for (int i = 0; i < 3; ++i) {
    dns::append_u16(message, 0);
  }
}

std::size_t most_bytes(const DnsQuery& query, DnsTransport transport) {
  if (transport == DnsTransport::kTcp) {
    return kLargestTcpMessage;
  }
  return std::clamp<std::size_t>(query.edns_size.value_or(0), kSmallDatagram, kLargeDatagram);
}

void append_address(std::vector<std::uint8_t>& message, std::uint16_t type,
                    const policy::IpAddress& address) {
  dns::append_u16(message, kQuestionPointer);
  dns::append_u16(message, type);
  dns::append_u16(message, dns::kInternet);
  dns::append_u16(message, kDnsTtl >> 16U);
  dns::append_u16(message, kDnsTtl & 0xffffU);
  dns::append_u16(message, address.bytes().size());
  message.insert(message.end(), address.bytes().begin(), address.bytes().end());
}

}  // namespace

Parsed<DnsQuery> parse_dns_query(Bytes message) {
  using Result = Parsed<DnsQuery>;
  if (message.size() > dns::kLargestMessage) {
    return Result::refused("the query is larger than 4k");
  }
  ByteReader reader(message);
  DnsQuery query;
  query.id = reader.u16();
  const std::uint16_t flags = reader.u16();
  const std::uint16_t questions = reader.u16();
  const std::uint16_t records = static_cast<std::uint16_t>(reader.u16() | reader.u16());
  const std::uint16_t additional = reader.u16();
  if (!reader.ok() || (flags & (kResponse | kOperation)) != 0) {
    return Result::refused("the message is not a query");
  }
  if (questions != 1 || records != 0 || additional > 1) {
    return Result::refused("the query is not one question");
  }
  const auto name = dns::read_name(message, kHeader, dns::Pointers::kRefused);
  if (!name.has_value()) {
    return Result::refused("the name in the query is broken");
  }
  ByteReader question(message.subspan(name->end));
  query.type = question.u16();
  query.klass = question.u16();
  if (!question.ok()) {
    return Result::refused("the query is cut off");
  }
  const std::size_t end = name->end + 4;
  if (additional == 1) {
    query.edns_size = read_opt(message.subspan(end));
    if (!query.edns_size.has_value()) {
      return Result::refused("what follows the question is not EDNS");
    }
  } else if (end != message.size()) {
    return Result::refused("something follows the question");
  }
  query.recursion_desired = (flags & kRecursionDesired) != 0;
  query.name = dns::host_of(*name);
  query.shown_name = name->text.empty() ? "." : name->text;
  query.question.assign(message.begin() + static_cast<std::ptrdiff_t>(kHeader),
                        message.begin() + static_cast<std::ptrdiff_t>(end));
  return Result::done(std::move(query), message.size());
}

std::vector<std::uint8_t> write_dns_answer(const DnsQuery& query, dns::ResponseCode code,
                                           const std::vector<policy::IpAddress>& addresses,
                                           DnsTransport transport) {
  const unsigned flags = kResponse | (query.recursion_desired ? kRecursionDesired : 0U) |
                         kRecursionAvailable | static_cast<unsigned>(code);
  std::vector<std::uint8_t> message;
  append_header(message, query.id, flags, 1);
  message.insert(message.end(), query.question.begin(), query.question.end());
  const std::size_t most =
      most_bytes(query, transport) - (query.edns_size.has_value() ? kOptRecord : 0);
  std::uint8_t count = 0;
  for (const policy::IpAddress& address : addresses) {
    const dns::RecordType type = address.is_v4() ? dns::RecordType::kA : dns::RecordType::kAaaa;
    if (query.type != static_cast<std::uint16_t>(type) || query.klass != dns::kInternet) {
      continue;
    }
    if (message.size() + kHeader + address.bytes().size() > most || count == 255) {
      message[2] |= kTruncated >> 8U;
      break;
    }
    append_address(message, query.type, address);
    ++count;
  }
  message[7] = count;
  if (query.edns_size.has_value()) {
    message.push_back(0);
    dns::append_u16(message, static_cast<std::uint16_t>(dns::RecordType::kOpt));
    dns::append_u16(message, kLargeDatagram);
    for (int i = 0; i < 3; ++i) {
      dns::append_u16(message, 0);  // code, version, flags; no options
    }
    message[11] = 1;
  }
  return message;
}

std::optional<std::vector<std::uint8_t>> write_dns_format_error(Bytes message) {
  ByteReader reader(message);
  const std::uint16_t id = reader.u16();
  const std::uint16_t flags = reader.u16();
  if (!reader.ok() || (flags & kResponse) != 0) {
    return std::nullopt;
  }
  const bool other_operation = (flags & kOperation) != 0;
  const dns::ResponseCode code =
      other_operation ? dns::ResponseCode::kNotImplemented : dns::ResponseCode::kFormatError;
  std::vector<std::uint8_t> answer;
  append_header(
      answer, id,
      kResponse | (flags & (kOperation | kRecursionDesired)) | static_cast<unsigned>(code), 0);
  return answer;
}

}  // namespace carrel::egress
