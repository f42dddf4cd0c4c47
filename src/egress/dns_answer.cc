#include "egress/dns_answer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "egress/dns_name.h"
#include "egress/reader.h"

namespace carrel::egress {
namespace {

constexpr std::size_t kHeader = 12;
constexpr std::size_t kMostAnswerRecords = 256;
constexpr int kMostAliases = 16;
constexpr std::uint16_t kResponse = 0x8000;
constexpr std::uint16_t kOperation = 0x7800;
constexpr std::uint16_t kTruncated = 0x0200;
constexpr std::uint16_t kRecursionDesired = 0x0100;
constexpr std::uint16_t kCode = 0x000f;

struct Records {
  std::vector<std::pair<std::string, std::string>> aliases;
  std::vector<std::pair<std::string, policy::IpAddress>> addresses;
};

DnsCode code_of(std::uint16_t flags) {
  const unsigned code = flags & kCode;
  return code <= static_cast<unsigned>(DnsCode::kRefused) ? static_cast<DnsCode>(code)
                                                          : DnsCode::kServerFailure;
}

std::optional<policy::IpAddress> read_address(DnsType type, Bytes data) {
  if (type == DnsType::kA && data.size() == 4) {
    return policy::IpAddress::from(policy::IpAddress::V4{data[0], data[1], data[2], data[3]});
  }
  if (type == DnsType::kAaaa && data.size() == 16) {
    policy::IpAddress::V6 bytes{};
    std::copy(data.begin(), data.end(), bytes.begin());
    return policy::IpAddress::from(bytes);
  }
  return std::nullopt;
}

// One record at `at`, which moves behind it. False: it is broken.
bool read_record(Bytes message, std::size_t& at, DnsType wanted, Records& records) {
  const auto owner = read_dns_name(message, at, DnsPointers::kFollowed);
  if (!owner.has_value()) {
    return false;
  }
  Reader reader(message.subspan(owner->end));
  const auto type = static_cast<DnsType>(reader.u16());
  const std::uint16_t klass = reader.u16();
  reader.u32();  // how long it holds: nothing is kept here
  const std::size_t size = reader.u16();
  const Bytes data = reader.take(size);
  if (!reader.ok()) {
    return false;
  }
  const std::size_t start = message.size() - reader.left() - size;
  at = start + size;
  if (klass != kDnsInternet) {
    return true;
  }
  if (type == DnsType::kCname) {
    const auto target = read_dns_name(message, start, DnsPointers::kFollowed);
    if (!target.has_value() || target->end != at) {
      return false;
    }
    records.aliases.emplace_back(owner->text, target->text);
  } else if (type == wanted) {
    const auto address = read_address(type, data);
    if (!address.has_value()) {
      return false;
    }
    records.addresses.emplace_back(owner->text, *address);
  }
  return true;
}

// What the name is called in the end; nothing: that never ends.
std::optional<std::string> follow(const Records& records, std::string name) {
  for (int steps = 0; steps <= kMostAliases; ++steps) {
    const auto alias = std::find_if(records.aliases.begin(), records.aliases.end(),
                                    [&](const auto& candidate) { return candidate.first == name; });
    if (alias == records.aliases.end()) {
      return name;
    }
    name = alias->second;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::uint8_t> write_dns_lookup(const DnsLookup& lookup) {
  std::vector<std::uint8_t> message;
  for (const std::size_t field : {std::size_t{lookup.id}, std::size_t{kRecursionDesired},
                                  std::size_t{1}, std::size_t{0}, std::size_t{0}, std::size_t{0}}) {
    append_u16(message, field);
  }
  append_dns_name(message, lookup.name);
  append_u16(message, static_cast<std::uint16_t>(lookup.type));
  append_u16(message, kDnsInternet);
  return message;
}

Parsed<DnsAnswer> parse_dns_answer(Bytes message, const DnsLookup& lookup) {
  using Result = Parsed<DnsAnswer>;
  Reader header(message);
  const std::uint16_t id = header.u16();
  const std::uint16_t flags = header.u16();
  const std::uint16_t questions = header.u16();
  const std::uint16_t count = header.u16();
  header.u32();  // what else there is does not matter
  if (!header.ok() || id != lookup.id || (flags & kResponse) == 0 || (flags & kOperation) != 0 ||
      questions != 1) {
    return Result::refused("the message is not the answer to this lookup");
  }
  const auto name = read_dns_name(message, kHeader, DnsPointers::kRefused);
  if (!name.has_value() || name->text != lookup.name.text()) {
    return Result::refused("the answer is for another name");
  }
  Reader question(message.subspan(name->end));
  const std::uint16_t type = question.u16();
  const std::uint16_t klass = question.u16();
  if (!question.ok() || type != static_cast<std::uint16_t>(lookup.type) || klass != kDnsInternet) {
    return Result::refused("the answer is to another question");
  }
  DnsAnswer answer;
  answer.code = code_of(flags);
  answer.truncated = (flags & kTruncated) != 0;
  if (answer.truncated || answer.code != DnsCode::kNoError) {
    return Result::done(std::move(answer), message.size());
  }
  if (count > kMostAnswerRecords) {
    return Result::refused("the answer has too many records");
  }
  Records records;
  std::size_t at = name->end + 4;
  for (std::uint16_t i = 0; i < count; ++i) {
    if (!read_record(message, at, lookup.type, records)) {
      return Result::refused("a record of the answer is broken");
    }
  }
  const auto last = follow(records, lookup.name.text());
  if (!last.has_value()) {
    return Result::refused("the name has too many aliases");
  }
  for (const auto& [owner, address] : records.addresses) {
    if (owner == *last) {
      answer.addresses.push_back(address);
    }
  }
  return Result::done(std::move(answer), message.size());
}

}  // namespace carrel::egress
