#include "egress/resolver.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/files.h"

namespace carrel::egress {

namespace {

// A connection of a sandbox waits: the next server is asked sooner than resolv.conf may say.
constexpr std::chrono::milliseconds kServerPatience{1500};

// One answer over a stream: its size in two bytes, and the message.
Task<std::vector<std::uint8_t>> read_framed(Watched& socket, Deadline deadline) {
  std::vector<std::uint8_t> data(2);
  std::size_t have = 0;
  while (have < data.size()) {
    const std::span<std::uint8_t> room(data.data() + have, data.size() - have);
    const auto n = co_await read_some(socket, room, deadline);
    if (n <= 0) {
      co_return std::vector<std::uint8_t>();
    }
    have += static_cast<std::size_t>(n);
    if (have == 2) {
      data.resize(2 + (static_cast<std::size_t>(data[0]) << 8 | data[1]));
    }
  }
  co_return std::vector<std::uint8_t>(data.begin() + 2, data.end());
}

}  // namespace

// Search domains do not matter: names are always asked for as they are.
void Resolver::read_configuration() {
  if (!follows_file_) {
    return;
  }
  auto text = read_file_at(AT_FDCWD, dns::kConfigurationFile);
  if (seen_.has_value() && (!text.ok() || text.value() == *seen_)) {
    return;
  }
  seen_ = text.ok() ? std::move(text.value()) : std::string();
  configuration_ = dns::parse_configuration(*seen_);
}

Task<Result<dns::Answer>> Resolver::ask(SocketAddress server, dns::Lookup lookup, int type) {
  const Deadline deadline = in(std::min(kServerPatience, configuration_.timeout));
  auto fd = make_socket(*server.address(), type);
  if (!fd.ok()) {
    co_return fd.error();
  }
  Watched socket(*loop_, std::move(fd.value()));
  const int connected = co_await connect_to(socket, server, deadline);
  if (connected != 0) {
    co_return system_error(-connected, "reach the resolver");
  }
  const std::vector<std::uint8_t> question =
      type == SOCK_STREAM ? dns::write_stream_lookup(lookup) : dns::write_lookup(lookup);
  const bool sent = co_await write_whole(socket, question, deadline);
  if (!sent) {
    co_return Error{Code::kUnavailable, 0, "the resolver does not listen", {}};
  }
  std::array<std::uint8_t, dns::kLargestMessage> buffer{};
  for (;;) {
    std::vector<std::uint8_t> message;
    if (type == SOCK_STREAM) {
      message = co_await read_framed(socket, deadline);
      if (message.empty()) {
        co_return Error{Code::kUnavailable, 0, "the resolver does not answer", {}};
      }
    } else {
      const auto n = co_await read_some(socket, buffer, deadline);
      if (n < 0) {
        co_return system_error(static_cast<int>(-n), "hear from the resolver");
      }
      message.assign(buffer.begin(), buffer.begin() + n);
    }
    auto answer = dns::parse_answer(message, lookup);
    if (answer.parsed()) {
      co_return std::move(answer.value);
    }
    if (type == SOCK_STREAM || answer.value.unusable) {
      co_return Error{Code::kUnavailable, 0, "the resolver's answer makes no sense", {}};
    }
    // A datagram that is no answer to this question may be somebody's attempt to be quicker. Where
    // there is always another one, reading never waits, and is never told that it is late.
    if (Clock::now() >= deadline) {
      co_return system_error(ETIMEDOUT, "hear from the resolver");
    }
  }
}

// What a server cannot say in one way, it is asked for in another.
Task<Result<dns::Answer>> Resolver::ask_fully(SocketAddress server, dns::Lookup lookup) {
  int type = configuration_.use_tcp ? SOCK_STREAM : SOCK_DGRAM;
  Result<dns::Answer> answer = co_await ask(server, lookup, type);
  if (answer.ok() && answer->refuses_format() && lookup.edns_size.has_value()) {
    lookup.edns_size.reset();
    answer = co_await ask(server, lookup, type);
  }
  if (answer.ok() && answer->truncated && type == SOCK_DGRAM) {
    type = SOCK_STREAM;
    answer = co_await ask(server, lookup, type);
  }
  if (answer.ok() && answer->truncated) {
    co_return Error{Code::kUnavailable, 0, "the resolver's answer makes no sense", {}};
  }
  co_return answer;
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::ask_all(policy::Host name,
                                                               dns::RecordType type) {
  Error last{Code::kUnavailable, 0, "there is no resolver", {}};
  const dns::Configuration configuration = configuration_;
  const std::size_t servers = configuration.servers.size();
  const std::size_t first = configuration.rotate ? dns::random_id() % servers : 0;
  for (std::size_t asked = 0; asked < servers * configuration.attempts; ++asked) {
    const dns::Configuration::Server& place = configuration.servers[(first + asked) % servers];
    const SocketAddress server = SocketAddress::of(place.address, place.port);
    dns::Lookup lookup{dns::random_id(), name, type};
    if (asked < servers) {  // a server that drops what it does not know is asked again without
      lookup.edns_size = dns::kSafeDatagram;
    }
    Result<dns::Answer> answer = co_await ask_fully(server, lookup);
    if (!answer.ok()) {
      last = answer.error();
      continue;
    }
    if (answer->code == dns::ResponseCode::kNoError ||
        answer->code == dns::ResponseCode::kNoSuchName) {
      co_return std::move(answer->addresses);
    }
    last = Error{Code::kUnavailable, 0, "the resolver failed", "the server is " + place.text()};
  }
  co_return last;
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::ask_doh(policy::Host name,
                                                               dns::RecordType type,
                                                               DohServer server) {
  std::vector<policy::IpAddress> addresses;
  if (const policy::IpAddress* literal = server.host.address()) {
    addresses.push_back(*literal);
  } else {
    auto found = co_await ask_all(server.host, dns::RecordType::kA);
    if (!found.ok()) {
      co_return found.error();
    }
    addresses = std::move(found.value());
  }
  Error last{Code::kUnavailable, 0, "the resolver has no address", {}};
  for (const policy::IpAddress& address : addresses) {
    const dns::Lookup lookup{0, name, type};
    Result<dns::Answer> answer = co_await ask_over_https(*loop_, tls_, server, address, lookup);
    if (answer.ok() && (answer->code == dns::ResponseCode::kNoError ||
                        answer->code == dns::ResponseCode::kNoSuchName)) {
      co_return std::move(answer->addresses);
    }
    last = answer.ok() ? Error{Code::kUnavailable, 0, "the resolver failed", {}} : answer.error();
  }
  co_return last;
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::ask_either(policy::Host name,
                                                                  dns::RecordType type,
                                                                  std::optional<DohServer> server) {
  // CRITICAL: one that was set is not gone around.
  if (server.has_value()) {
    Result<std::vector<policy::IpAddress>> over = co_await ask_doh(name, type, *server);
    co_return over;
  }
  Result<std::vector<policy::IpAddress>> plain = co_await ask_all(name, type);
  co_return plain;
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::resolve(policy::Host name,
                                                               std::optional<DohServer> server) {
  read_configuration();
  Result<std::vector<policy::IpAddress>> four =
      co_await ask_either(name, dns::RecordType::kA, server);
  Result<std::vector<policy::IpAddress>> six = std::vector<policy::IpAddress>();
  if (!four.ok() || four->empty()) {
    six = co_await ask_either(name, dns::RecordType::kAaaa, server);
  }
  if (!four.ok() && !six.ok()) {
    co_return four.error();
  }
  std::vector<policy::IpAddress> all;
  for (auto* part : {&four, &six}) {
    if (part->ok()) {
      all.insert(all.end(), part->value().begin(), part->value().end());
    }
  }
  if (all.empty()) {
    co_return Error{Code::kNotFound, 0, "the name has no address", {}};
  }
  co_return all;
}

}  // namespace carrel::egress
