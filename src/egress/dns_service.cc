#include "egress/dns_service.h"

#include <array>
#include <utility>

#include "egress/dns_message.h"
#include "egress/io.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kStreamPatience{10};
// The last of the synthetic addresses, which no name gets.
const policy::IpAddress kCanary = policy::IpAddress::from(policy::IpAddress::V4{198, 19, 255, 254});

bool asks_for_address(const DnsQuery& query) {
  return query.klass == 1 && (query.type == static_cast<std::uint16_t>(dns::RecordType::kA) ||
                              query.type == static_cast<std::uint16_t>(dns::RecordType::kAaaa));
}

// The answer; nothing when there is none to give.
std::optional<std::vector<std::uint8_t>> answer(Room& room, Bytes message, DnsTransport transport) {
  const auto parsed = parse_dns_query(message);
  if (!parsed.parsed()) {
    return write_dns_format_error(message);
  }
  const DnsQuery& query = parsed.value;
  DecisionRecord record;
  record.event = "lookup";
  record.host = query.shown_name;
  const auto refuse = [&](dns::ResponseCode code, std::string why, std::string rule) {
    record.reason = std::move(why);
    record.rule = std::move(rule);
    room.log(record);
    return write_dns_answer(query, code, {}, transport);
  };
  if (!room.spend_lookup()) {
    return refuse(dns::ResponseCode::kRefused, "too many lookups in one minute", {});
  }
  if (!query.name.has_value() || !query.name->is_name()) {
    return refuse(dns::ResponseCode::kNoSuchName, "no host has this name", {});
  }
  if (room.is_canary(*query.name)) {
    return write_dns_answer(query, dns::ResponseCode::kNoError, {kCanary}, transport);
  }
  policy::Verdict verdict = may_resolve(room.policy(), *query.name);
  if (verdict.denied()) {
    return refuse(dns::ResponseCode::kNoSuchName, std::move(verdict.reason),
                  std::move(verdict.rule));
  }
  // Everything else about the name, keys of encrypted hellos among it, does not exist.
  if (!asks_for_address(query)) {
    return write_dns_answer(query, dns::ResponseCode::kNoError, {}, transport);
  }
  auto addresses = room.names().addresses_of(*query.name);
  if (!addresses.ok()) {
    return refuse(dns::ResponseCode::kServerFailure, addresses.error().message, {});
  }
  record.allowed = true;
  record.rule = std::move(verdict.rule);
  record.reason = std::move(verdict.reason);
  room.log(record);
  return write_dns_answer(query, dns::ResponseCode::kNoError, {addresses->v4, addresses->v6},
                          transport);
}

}  // namespace

Task<void> serve_dns_datagrams(std::shared_ptr<Room> room, std::shared_ptr<Watched> socket) {
  std::array<std::uint8_t, dns::kLargestMessage> buffer{};
  while (!room->closed()) {
    SocketAddress from;
    from.size = sizeof from.storage;
    const ssize_t n = ::recvfrom(socket->fd(), buffer.data(), buffer.size(), MSG_DONTWAIT,
                                 from.get(), &from.size);
    if (n < 0) {
      if (errno == EAGAIN) {
        co_await socket->readable();
      }
      continue;
    }
    const auto reply =
        answer(*room, Bytes(buffer.data(), static_cast<std::size_t>(n)), DnsTransport::kUdp);
    if (reply.has_value()) {
      (void)::sendto(socket->fd(), reply->data(), reply->size(), MSG_DONTWAIT, from.get(),
                     from.size);
    }
    if (socket->has_had_its_turn()) {
      co_await room->service().loop.turn();
    }
  }
}

namespace {

// Answers one lookup after the other, each with its size before it.
Task<void> answer_all(std::shared_ptr<Room> room, Watched& client, DnsTransport transport) {
  std::vector<std::uint8_t> data;
  std::array<std::uint8_t, dns::kLargestMessage> buffer{};
  const bool carried = transport == DnsTransport::kUdp;
  for (bool open = true; open;) {
    const Deadline patience = carried ? kNever : in(kStreamPatience);
    const auto n = co_await read_some(client, buffer, patience);
    if (n <= 0) {
      break;
    }
    data.insert(data.end(), buffer.begin(), buffer.begin() + n);
    while (open && data.size() >= 2) {
      const std::size_t size = static_cast<std::size_t>(data[0]) << 8 | data[1];
      if (size > dns::kLargestMessage) {
        open = false;
      }
      if (data.size() < size + 2) {
        break;
      }
      auto reply = answer(*room, Bytes(data).subspan(2, size), transport);
      data.erase(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(size + 2));
      if (!reply.has_value() && !carried) {
        open = false;
        break;
      }
      std::vector<std::uint8_t> told = reply.value_or(std::vector<std::uint8_t>());
      told.insert(told.begin(), {static_cast<std::uint8_t>(told.size() >> 8),
                                 static_cast<std::uint8_t>(told.size())});
      open = co_await write_whole(client, told, in(kStreamPatience));
    }
  }
}

}  // namespace

Task<void> serve_dns_stream(std::shared_ptr<Room> room, UniqueFd connection) {
  Watched client(room->service().loop, std::move(connection));
  LiveFlow flow;
  flow.client = &client;
  if (!room->enter(flow).ok()) {
    client.reset_on_close();
    co_return;
  }
  co_await answer_all(room, client, DnsTransport::kTcp);
  room->leave(flow);
}

Task<void> serve_dns_carried(std::shared_ptr<Room> room, UniqueFd connection) {
  Watched client(room->service().loop, std::move(connection));
  co_await answer_all(room, client, DnsTransport::kUdp);
}

}  // namespace carrel::egress
