#include "egress/resolver.h"

#include <fcntl.h>
#include <sys/random.h>

#include <array>
#include <sstream>

#include "base/files.h"

namespace carrel::egress {

namespace {

constexpr const char* kConfiguration = "/etc/resolv.conf";
constexpr std::size_t kMostServers = 3;
constexpr std::chrono::milliseconds kPatience{1500};
constexpr int kRounds = 2;

std::uint16_t random_id() {
  std::uint16_t id = 0;
  while (::getrandom(&id, sizeof id, 0) != sizeof id) {
  }
  return id;
}

// One answer over a stream: its size in two bytes, and the message.
Task<std::vector<std::uint8_t>> read_framed(Watched& socket, Deadline deadline) {
  std::vector<std::uint8_t> data(2 + kLargestDnsMessage);
  std::size_t have = 0;
  std::size_t wanted = 2;
  while (have < wanted) {
    const std::span<std::uint8_t> room(data.data() + have, wanted - have);
    const auto n = co_await read_some(socket, room, deadline);
    if (n <= 0) {
      co_return std::vector<std::uint8_t>();
    }
    have += static_cast<std::size_t>(n);
    if (wanted == 2 && have == 2) {
      wanted += static_cast<std::size_t>(data[0]) << 8 | data[1];
    }
    if (wanted > data.size()) {
      co_return std::vector<std::uint8_t>();
    }
  }
  co_return std::vector<std::uint8_t>(data.begin() + 2,
                                      data.begin() + static_cast<std::ptrdiff_t>(have));
}

}  // namespace

// Only addresses of servers matter: names are always asked for as they are.
void Resolver::read_configuration() {
  auto text = read_file_at(AT_FDCWD, kConfiguration);
  if (!text.ok() || text.value() == seen_) {
    return;
  }
  seen_ = text.value();
  servers_.clear();
  std::istringstream lines(seen_);
  for (std::string line; std::getline(lines, line) && servers_.size() < kMostServers;) {
    std::istringstream words(line);
    std::string key;
    std::string value;
    if (!(words >> key >> value) || key != "nameserver") {
      continue;
    }
    if (const auto address = policy::IpAddress::parse(value)) {
      servers_.push_back(SocketAddress::of(*address, 53));
    }
  }
  if (servers_.empty()) {
    servers_.push_back(
        SocketAddress::of(policy::IpAddress::from(policy::IpAddress::V4{127, 0, 0, 1}), 53));
  }
}

Task<Result<DnsAnswer>> Resolver::ask(SocketAddress server, DnsLookup lookup, int type) {
  const Deadline deadline = in(kPatience);
  auto fd = make_socket(*server.address(), type);
  if (!fd.ok()) {
    co_return fd.error();
  }
  Watched socket(*loop_, std::move(fd.value()));
  const int connected = co_await connect_to(socket, server, deadline);
  if (connected != 0) {
    co_return system_error(-connected, "reach the resolver");
  }
  std::vector<std::uint8_t> question = write_dns_lookup(lookup);
  if (type == SOCK_STREAM) {
    const auto size = static_cast<std::uint16_t>(question.size());
    question.insert(question.begin(),
                    {static_cast<std::uint8_t>(size >> 8), static_cast<std::uint8_t>(size)});
  }
  const bool sent = co_await write_whole(socket, question, deadline);
  if (!sent) {
    co_return Error{Code::kUnavailable, 0, "the resolver does not listen", {}};
  }
  std::array<std::uint8_t, kLargestDnsMessage> buffer{};
  for (;;) {
    std::vector<std::uint8_t> message;
    if (type == SOCK_STREAM) {
      message = co_await read_framed(socket, deadline);
      if (message.empty()) {
        co_return Error{Code::kUnavailable, 0, "the resolver does not answer", {}};
      }
    } else {
      const auto n = co_await read_some(socket, buffer, deadline);
      if (n <= 0) {
        co_return system_error(static_cast<int>(-n), "hear from the resolver");
      }
      message.assign(buffer.begin(), buffer.begin() + n);
    }
    auto answer = parse_dns_answer(message, lookup);
    if (answer.parsed()) {
      co_return std::move(answer.value);
    }
    if (type == SOCK_STREAM) {
      co_return Error{Code::kUnavailable, 0, "the resolver's answer makes no sense", {}};
    }
    // A datagram that is no answer to this question may be somebody's attempt to be quicker.
  }
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::ask_all(policy::Host name, DnsType type) {
  DnsLookup lookup{random_id(), name, type};
  Error last{Code::kUnavailable, 0, "there is no resolver", {}};
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<SocketAddress> servers = servers_;
    for (const SocketAddress& server : servers) {
      Result<DnsAnswer> answer = co_await ask(server, lookup, SOCK_DGRAM);
      if (answer.ok() && answer->truncated) {
        answer = co_await ask(server, lookup, SOCK_STREAM);
      }
      if (!answer.ok()) {
        last = answer.error();
        continue;
      }
      if (answer->code == DnsCode::kNoError || answer->code == DnsCode::kNoSuchName) {
        co_return std::move(answer->addresses);
      }
      last = Error{Code::kUnavailable, 0, "the resolver failed", {}};
    }
  }
  co_return last;
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::ask_doh(policy::Host name, DnsType type,
                                                               DohServer server) {
  std::vector<policy::IpAddress> addresses;
  if (const policy::IpAddress* literal = server.host.address()) {
    addresses.push_back(*literal);
  } else {
    auto found = co_await ask_all(server.host, DnsType::kA);
    if (!found.ok()) {
      co_return found.error();
    }
    addresses = std::move(found.value());
  }
  Error last{Code::kUnavailable, 0, "the resolver has no address", {}};
  for (const policy::IpAddress& address : addresses) {
    const DnsLookup lookup{0, name, type};
    Result<DnsAnswer> answer = co_await ask_over_https(*loop_, tls_, server, address, lookup);
    if (answer.ok() &&
        (answer->code == DnsCode::kNoError || answer->code == DnsCode::kNoSuchName)) {
      co_return std::move(answer->addresses);
    }
    last = answer.ok() ? Error{Code::kUnavailable, 0, "the resolver failed", {}} : answer.error();
  }
  co_return last;
}

Task<Result<std::vector<policy::IpAddress>>> Resolver::ask_either(policy::Host name, DnsType type,
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
  Result<std::vector<policy::IpAddress>> four = co_await ask_either(name, DnsType::kA, server);
  Result<std::vector<policy::IpAddress>> six = std::vector<policy::IpAddress>();
  if (!four.ok() || four->empty()) {
    six = co_await ask_either(name, DnsType::kAaaa, server);
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
