// Any bytes as the header and the payloads of the protocol. What a parser accepts is written again
// to the same bytes, so there is one form of every message and nothing in it is overlooked.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/boot.h"
#include "protocol/frame.h"
#include "protocol/message.h"
#include "protocol/service.h"

namespace {

namespace protocol = carrel::protocol;
using protocol::Reader;
using protocol::Writer;

void require(bool fact) {
  if (!fact) {
    std::abort();
  }
}

template <typename Message>
void round_trip(std::string_view payload, bool (*parse)(std::string_view, Message&),
                void (*write)(Writer&, const Message&)) {
  Message message;
  if (!parse(payload, message)) {
    return;
  }
  std::vector<unsigned char> room(payload.size());
  Writer writer(room);
  write(writer, message);
  require(writer.ok());
  const auto written = writer.written();
  const std::string_view again(reinterpret_cast<const char*>(written.data()), written.size());
  require(again == payload);
  Message second;
  require(parse(again, second));
}

// Every string of a list ends with a zero byte, and there are `count` of them.
void check_list(const protocol::StringList& list) {
  std::size_t strings = 0;
  for (const char c : list.data) {
    strings += c == '\0' ? 1 : 0;
  }
  require(strings == list.count && list.count <= protocol::kMaxArguments);
  require(list.data.empty() || list.data.back() == '\0');
}

void start(std::string_view payload) {
  round_trip<protocol::Start>(payload, protocol::parse_start, protocol::write_start);
  protocol::Start message;
  if (protocol::parse_start(payload, message)) {
    check_list(message.arguments);
    check_list(message.environment);
    require(message.timeout_ms > 0 && message.timeout_ms <= protocol::kMaxTimeoutMs);
    require((message.kind == protocol::StartKind::kExec) == (message.arguments.count > 0));
  }
}

void boot(std::string_view payload) {
  round_trip<protocol::Boot>(payload, protocol::parse_boot, protocol::write_boot);
  protocol::Boot message;
  if (protocol::parse_boot(payload, message)) {
    check_list(message.environment);
    check_list(message.writable);
    require(message.uid != 0 && message.gid != 0);
  }
}

void steps(std::string_view payload) {
  Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  std::vector<unsigned char> room(payload.size());
  Writer writer(room);
  protocol::MountStep step;
  while (protocol::parse_step(reader, step)) {
    require(step.slot <
            (step.kind == protocol::StepKind::kTree ? protocol::kMaxTrees : protocol::kMaxTmpfs));
    protocol::write_step(writer, step);
    require(writer.ok());
  }
  const auto written = writer.written();
  const std::string_view again(reinterpret_cast<const char*>(written.data()), written.size());
  require(payload.starts_with(again));
  require(!reader.ok() || again == payload);
}

void header(std::string_view payload) {
  if (payload.size() < protocol::kHeaderSize) {
    return;
  }
  std::span<const unsigned char, protocol::kHeaderSize> head(
      reinterpret_cast<const unsigned char*>(payload.data()), protocol::kHeaderSize);
  protocol::FrameHeader parsed;
  if (!protocol::parse_header(head, protocol::kMaxGuestPayload, parsed)) {
    return;
  }
  require(parsed.size <= protocol::kMaxGuestPayload);
  std::array<unsigned char, protocol::kHeaderSize> again{};
  protocol::write_header(parsed, again);
  require(std::equal(again.begin(), again.end(), head.begin()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  // A copy of exactly this size: a read past the end is a finding.
  const std::vector<char> copy(data + 1, data + size);
  const std::string_view payload(copy.data(), copy.size());
  switch (data[0]) {
    case 'h':
      header(payload);
      break;
    case 's':
      start(payload);
      break;
    case 'v':
      round_trip<protocol::Service>(payload, protocol::parse_service, protocol::write_service);
      break;
    case 'w':
      round_trip<protocol::ServiceRow>(payload, protocol::parse_service_row,
                                       protocol::write_service_row);
      break;
    case 'x':
      round_trip<protocol::Exit>(payload, protocol::parse_exit, protocol::write_exit);
      break;
    case 'r':
      round_trip<protocol::CommandRow>(payload, protocol::parse_command_row,
                                       protocol::write_command_row);
      break;
    case 'b':
      boot(payload);
      break;
    case 'p':
      steps(payload);
      break;
    case 'P':
      round_trip<protocol::Plan>(payload, protocol::parse_plan, protocol::write_plan);
      break;
    case 'n':
      round_trip<protocol::Nursery>(payload, protocol::parse_nursery, protocol::write_nursery);
      break;
    case 'S':
      round_trip<protocol::Spawn>(payload, protocol::parse_spawn, protocol::write_spawn);
      break;
    default:
      return -1;  // not worth keeping
  }
  return 0;
}
