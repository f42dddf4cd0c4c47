#include "dns/message.h"

#include <sys/random.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/byte_reader.h"
#include "dns/name.h"

namespace carrel::dns {
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

ResponseCode code_of(std::uint16_t flags) {
  const unsigned code = flags & kCode;
  return code <= static_cast<unsigned>(ResponseCode::kRefused) ? static_cast<ResponseCode>(code)
                                                               : ResponseCode::kServerFailure;
}

std::optional<policy::IpAddress> read_address(RecordType type, Bytes data) {
  if (type == RecordType::kA && data.size() == 4) {
    return policy::IpAddress::from(policy::IpAddress::V4{data[0], data[1], data[2], data[3]});
  }
  if (type == RecordType::kAaaa && data.size() == 16) {
    policy::IpAddress::V6 bytes{};
    std::copy(data.begin(), data.end(), bytes.begin());
    return policy::IpAddress::from(bytes);
  }
  return std::nullopt;
}

// One record at `at`, which moves behind it. False: it is broken.
bool read_record(Bytes message, std::size_t& at, RecordType wanted, Records& records) {
  const auto owner = read_name(message, at, Pointers::kFollowed);
  if (!owner.has_value()) {
    return false;
  }
  ByteReader reader(message.subspan(owner->end));
  const auto type = static_cast<RecordType>(reader.u16());
  const std::uint16_t klass = reader.u16();
  reader.u32();  // how long it holds: nothing is kept here
  const std::size_t size = reader.u16();
  const Bytes data = reader.take(size);
  if (!reader.ok()) {
    return false;
  }
  const std::size_t start = message.size() - reader.left() - size;
  at = start + size;
  if (klass != kInternet) {
    return true;
  }
  if (type == RecordType::kCname) {
    const auto target = read_name(message, start, Pointers::kFollowed);
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

// The server itself said it, and not somebody who wants to be quicker.
Parsed<Answer> unusable(std::string_view reason) {
  Parsed<Answer> result = Parsed<Answer>::refused(reason);
  result.value.unusable = true;
  return result;
}

// Where the question of an answer ends. Nothing: it is not that of the lookup.
std::optional<std::size_t> end_of_question(Bytes message, const Lookup& lookup) {
  const auto name = read_name(message, kHeader, Pointers::kRefused);
  if (!name.has_value() || name->text != lookup.name.text()) {
    return std::nullopt;
  }
  ByteReader question(message.subspan(name->end));
  const std::uint16_t type = question.u16();
  const std::uint16_t klass = question.u16();
  if (!question.ok() || type != static_cast<std::uint16_t>(lookup.type) || klass != kInternet) {
    return std::nullopt;
  }
  return name->end + 4;
}

// The record that says that EDNS0 is spoken: no extended code, version 0, no flags, no options.
void append_opt(std::vector<std::uint8_t>& message, std::uint16_t size) {
  message.push_back(0);
  append_u16(message, static_cast<std::uint16_t>(RecordType::kOpt));
  append_u16(message, size);
  for (int i = 0; i < 3; ++i) {
    append_u16(message, 0);
  }
}

}  // namespace

std::vector<std::uint8_t> write_lookup(const Lookup& lookup) {
  std::vector<std::uint8_t> message;
  const std::size_t additional = lookup.edns_size.has_value() ? 1 : 0;
  for (const std::size_t field : {std::size_t{lookup.id}, std::size_t{kRecursionDesired},
                                  std::size_t{1}, std::size_t{0}, std::size_t{0}, additional}) {
    append_u16(message, field);
  }
  append_name(message, lookup.name);
  append_u16(message, static_cast<std::uint16_t>(lookup.type));
  append_u16(message, kInternet);
  if (lookup.edns_size.has_value()) {
    append_opt(message, *lookup.edns_size);
  }
  return message;
}

std::vector<std::uint8_t> write_stream_lookup(const Lookup& lookup) {
  const std::vector<std::uint8_t> message = write_lookup(lookup);
  std::vector<std::uint8_t> framed;
  append_u16(framed, message.size());
  framed.insert(framed.end(), message.begin(), message.end());
  return framed;
}

std::uint16_t random_id() {
  std::uint16_t id = 0;
  while (::getrandom(&id, sizeof id, 0) != sizeof id) {
  }
  return id;
}

Parsed<Answer> parse_answer(Bytes message, const Lookup& lookup) {
  using Result = Parsed<Answer>;
  ByteReader header(message);
  const std::uint16_t id = header.u16();
  const std::uint16_t flags = header.u16();
  const std::uint16_t questions = header.u16();
  const std::uint16_t count = header.u16();
  header.u32();  // what else there is does not matter
  if (!header.ok() || id != lookup.id || (flags & kResponse) == 0 || (flags & kOperation) != 0) {
    return Result::refused("the message is not the answer to this lookup");
  }
  const Answer complaint{code_of(flags), false, {}};
  if (questions == 0 && message.size() == kHeader && complaint.refuses_format()) {
    return Result::done(complaint, message.size());
  }
  const auto end = end_of_question(message, lookup);
  if (questions != 1 || !end.has_value()) {
    return Result::refused("the answer is to another question");
  }
  Answer answer;
  answer.code = code_of(flags);
  answer.truncated = (flags & kTruncated) != 0;
  if (answer.truncated || answer.code != ResponseCode::kNoError) {
    return Result::done(std::move(answer), message.size());
  }
  if (count > kMostAnswerRecords) {
    return unusable("the answer has too many records");
  }
  Records records;
  std::size_t at = *end;
  for (std::uint16_t i = 0; i < count; ++i) {
    if (!read_record(message, at, lookup.type, records)) {
      return unusable("a record of the answer is broken");
    }
  }
  const auto last = follow(records, lookup.name.text());
  if (!last.has_value()) {
    return unusable("the name has too many aliases");
  }
  for (const auto& [owner, address] : records.addresses) {
    if (owner == *last) {
      answer.addresses.push_back(address);
    }
  }
  return Result::done(std::move(answer), message.size());
}

}  // namespace carrel::dns
