#include "egress/self_test.h"

#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "dns/message.h"
#include "egress/io.h"
#include "policy/decide.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kSelfTestPatience{5};
constexpr std::uint16_t kDnsPort = 53;
constexpr std::uint16_t kDiscardPort = 9;
constexpr std::uint16_t kHttpPort = 80;

policy::IpAddress v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return policy::IpAddress::from(policy::IpAddress::V4{a, b, c, d});
}

Error broken(const std::string& what) {
  return {Code::kDenied, 0, "the sandbox's network does not hold: " + what,
          "it was tried from inside before the first command; run 'carrel doctor'"};
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

// A name that nobody else asks for.
policy::Host random_name() {
  return policy::canonical_host("n" + std::to_string(random_number()) + ".carrel.invalid").value();
}

// What somebody who asks a server of his own choice for the name is told.
Task<Result<dns::Answer>> look_up(Watched& socket, policy::Host name) {
  const SocketAddress server = SocketAddress::of(v4(192, 0, 2, kDnsPort), kDnsPort);
  const dns::Lookup lookup{static_cast<std::uint16_t>(random_number()), name, dns::RecordType::kA};
  const std::vector<std::uint8_t> question = dns::write_lookup(lookup);
  if (::connect(socket.fd(), server.get(), server.size) != 0 ||
      ::send(socket.fd(), question.data(), question.size(), MSG_DONTWAIT | MSG_NOSIGNAL) !=
          static_cast<ssize_t>(question.size())) {
    co_return broken("lookups do not get to the egress process");
  }
  std::array<std::uint8_t, dns::kLargestMessage> buffer{};
  const auto n = co_await read_some(socket, buffer, in(kSelfTestPatience));
  if (n <= 0) {
    co_return broken("lookups are not answered");
  }
  auto answer = dns::parse_answer(Bytes(buffer.data(), static_cast<std::size_t>(n)), lookup);
  if (!answer.parsed()) {
    co_return broken("a lookup is answered by somebody else");
  }
  co_return std::move(answer.value);
}

Task<Status> prove_names(Room& room, Watched& socket) {
  const policy::Host canary = random_name();
  const policy::Host other = random_name();
  room.set_canary(canary);
  Result<dns::Answer> found = co_await look_up(socket, canary);
  if (!found.ok()) {
    co_return found.error();
  }
  if (found->code != dns::ResponseCode::kNoError || found->addresses.empty()) {
    co_return broken("an allowed name is not found");
  }
  Result<dns::Answer> missed = co_await look_up(socket, other);
  if (!missed.ok()) {
    co_return missed.error();
  }
  if (may_resolve(room.policy(), other).denied() &&
      (missed->code != dns::ResponseCode::kNoSuchName || !missed->addresses.empty())) {
    co_return broken("a name that is not allowed is found");
  }
  co_return Status();
}

Status prove_datagrams(Watched& socket) {
  const SocketAddress nowhere = SocketAddress::of(v4(192, 0, 2, 1), kDiscardPort);
  constexpr std::string_view kWord = "carrel";
  const bool went =
      ::connect(socket.fd(), nowhere.get(), nowhere.size) == 0 &&
      ::send(socket.fd(), kWord.data(), kWord.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  return went ? Status(broken("a datagram is not refused")) : Status();
}

Task<Status> prove_refusal(Room& room, Watched& socket) {
  const policy::IpAddress metadata = v4(169, 254, 169, 254);
  policy::Flow flow;
  flow.host = policy::Host(metadata);
  flow.port = kHttpPort;
  if (may_dial(room.policy(), flow, metadata, room.service().own_addresses()).allowed()) {
    co_return Status();  // somebody listed it
  }
  const SocketAddress there = SocketAddress::of(metadata, kHttpPort);
  const int connected = co_await connect_to(socket, there, in(kSelfTestPatience));
  if (connected != 0) {
    co_return broken("connections do not get to the egress process");
  }
  constexpr std::string_view kRequest =
      "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\nConnection: close\r\n\r\n";
  const bool sent = co_await write_whole(socket, bytes_of(kRequest), in(kSelfTestPatience));
  std::array<std::uint8_t, 1024> buffer{};
  const auto n = co_await read_some(socket, buffer, in(kSelfTestPatience));
  constexpr std::string_view kRefused = "HTTP/1.1 403 ";
  const std::string_view answer(reinterpret_cast<const char*>(buffer.data()),
                                n > 0 ? static_cast<std::size_t>(n) : 0U);
  if (!sent || (n > 0 && !answer.starts_with(kRefused)) || n == -ETIMEDOUT) {
    co_return broken("a metadata service is not refused");
  }
  co_return Status();
}

}  // namespace

Task<Status> prove(Room& room, Probes probes, Tried tried) {
  if (!probes.datagram.valid() || !probes.stream.valid()) {
    co_return broken("its guest gave no sockets to try it with");
  }
  Watched datagram(room.service().loop, std::move(probes.datagram));
  Watched stream(room.service().loop, std::move(probes.stream));
  room.set_proving(Room::Proving::kYes);
  Status proven = co_await prove_names(room, datagram);
  if (proven.ok()) {
    proven = prove_datagrams(datagram);
  }
  if (proven.ok() && tried == Tried::kNothing) {
    proven = co_await prove_refusal(room, stream);
  }
  room.set_proving(Room::Proving::kNo);
  co_return proven;
}

}  // namespace carrel::egress
