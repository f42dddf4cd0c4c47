#include "egress/room.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "egress/dns_service.h"
#include "egress/flow.h"
#include "egress/io.h"

namespace carrel::egress {

namespace {

// What is accepted is the same. Between a sandbox and this process nothing is lost and nobody
// shares the way: to collect small pieces there, or to pace large ones as the host's default may,
// only takes time.
void hurry(int listener) {
  constexpr std::string_view kUnpaced = "reno";  // every kernel has it, for everybody
  const int yes = 1;
  ::setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, kUnpaced.data(), kUnpaced.size());
}

}  // namespace

const std::vector<policy::IpAddress>& Service::own_addresses() {
  constexpr std::chrono::seconds kLookAgain{5};
  if (looked_ != Deadline() && Clock::now() - looked_ < kLookAgain) {
    return own_;
  }
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) == 0) {
    own_.clear();
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr) {
        continue;
      }
      SocketAddress address;
      address.size =
          one->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6) {
        std::copy_n(reinterpret_cast<const char*>(one->ifa_addr), address.size,
                    reinterpret_cast<char*>(&address.storage));
        own_.push_back(*address.address());
      }
    }
    ::freeifaddrs(list);
    looked_ = Clock::now();
  }
  return own_;
}

Result<std::string> Service::secret(const std::string& name) const {
  if (!secrets.has_value()) {
    return Error{Code::kUnavailable, 0, "there is no store of secrets", {}};
  }
  return secrets->read(name);
}

Room::Room(Service& service, std::string id, policy::NetworkPolicy policy, SyntheticNames names,
           KeptUsage usage)
    : service_(&service),
      id_(std::move(id)),
      policy_(std::move(policy)),
      names_(std::move(names)),
      usage_(std::move(usage)) {}

void Room::open(RoomSockets sockets) {
  for (std::uint32_t i = 0; i < sockets.size(); ++i) {
    if (!sockets[i].valid()) {
      continue;
    }
    auto socket = std::make_shared<Watched>(service_->loop, std::move(sockets[i]));
    sockets_.push_back(socket);
    switch (static_cast<protocol::NetworkSocket>(i)) {
      case protocol::kTcpSocket:
      case protocol::kTcpSocket6:
        hurry(socket->fd());
        spawn(accept_flows(shared_from_this(), socket, Entrance::kRedirected));
        break;
      case protocol::kProxySocket:
        hurry(socket->fd());
        spawn(accept_flows(shared_from_this(), socket, Entrance::kProxy));
        break;
      case protocol::kDnsSocket:
      case protocol::kDnsSocket6:
        spawn(serve_dns_datagrams(shared_from_this(), socket));
        break;
      case protocol::kDnsStream:
      case protocol::kDnsStream6:
        spawn(accept_flows(shared_from_this(), socket, Entrance::kDns));
        break;
      case protocol::kDatagramProbe:
      case protocol::kStreamProbe:
      case protocol::kNetworkSockets:
        break;
    }
  }
}

void Room::cut(LiveFlow& flow, std::string why) {
  flow.ended_by = std::move(why);
  for (Watched* side : {flow.client, flow.server}) {
    if (side != nullptr) {
      side->reset_on_close();
    }
  }
  // What is woken here may take the flow away.
  Watched* server = flow.server;
  Watched* client = flow.client;
  const auto here = [&] { return std::find(flows_.begin(), flows_.end(), &flow) != flows_.end(); };
  if (client != nullptr) {
    client->shut();
  }
  if (server != nullptr && here() && flow.server == server) {
    server->shut();
  }
}

void Room::set_policy(policy::NetworkPolicy policy) {
  policy_ = std::move(policy);
  const std::vector<LiveFlow*> all(flows_.begin(), flows_.end());
  for (LiveFlow* flow : all) {
    if (std::find(flows_.begin(), flows_.end(), flow) == flows_.end()) {
      continue;
    }
    policy::Verdict verdict = decide(policy_, flow->flow);
    // What is carried without being read cannot be decided on any more.
    const bool unread = flow->server != nullptr && !flow->reads_requests && !verdict.allowed();
    const policy::IpAddress* address = flow->dialled ? &flow->address : flow->flow.host.address();
    if (!verdict.denied() && flow->server != nullptr && address != nullptr && !unread) {
      verdict = may_dial(policy_, flow->flow, *address, service_->own_addresses());
    }
    if (verdict.denied() || unread) {
      cut(*flow, "the policy was changed: " + verdict.reason);
    }
  }
}

void Room::close() {
  const auto self = shared_from_this();
  closed_ = true;
  const std::vector<LiveFlow*> all(flows_.begin(), flows_.end());
  for (LiveFlow* flow : all) {
    if (std::find(flows_.begin(), flows_.end(), flow) != flows_.end()) {
      cut(*flow, "the sandbox ended");
    }
  }
  const auto sockets = std::move(sockets_);
  for (const auto& socket : sockets) {
    socket->shut();
  }
  usage_.settle();
}

Status Room::enter(LiveFlow& flow) {
  if (closed_) {
    return Error{Code::kGone, 0, "the sandbox ended", {}};
  }
  if (flows_.size() >= policy_.budgets.connections) {
    return Error{Code::kResource,
                 0,
                 "the sandbox has as many connections as it may have at once, " +
                     std::to_string(policy_.budgets.connections),
                 {}};
  }
  flows_.push_back(&flow);
  if (!proving_) {
    usage_.count_connection();
  }
  return {};
}

std::string Room::used_up() const {
  const policy::NetworkBudgets& budgets = policy_.budgets;
  const auto sentence = [](const char* way, std::uint64_t bytes) {
    return std::string("the sandbox's budget for bytes that ") + way + " the network, " +
           std::to_string(bytes) + ", is used up";
  };
  if (usage().bytes_out >= budgets.bytes_out) {
    return sentence("leave over", budgets.bytes_out);
  }
  return usage().bytes_in >= budgets.bytes_in ? sentence("come in over", budgets.bytes_in)
                                              : std::string();
}

void Room::leave(LiveFlow& flow) { flows_.remove(&flow); }

bool Room::spend_out(std::uint64_t bytes) { return usage_.spend_out(bytes, policy_.budgets); }

bool Room::spend_in(std::uint64_t bytes) { return usage_.spend_in(bytes, policy_.budgets); }

std::vector<policy::IpAddress> Room::remembered(const policy::Host& name) const {
  const auto found = remembered_.find(name.text());
  return found != remembered_.end() && Clock::now() < found->second.until
             ? found->second.addresses
             : std::vector<policy::IpAddress>();
}

void Room::remember(const policy::Host& name, std::vector<policy::IpAddress> addresses) {
  constexpr std::chrono::seconds kMoment{5};
  constexpr std::size_t kMostNames = 64;
  if (remembered_.size() >= kMostNames) {
    remembered_.clear();
  }
  remembered_[name.text()] = {std::move(addresses), in(kMoment)};
}

bool Room::spend_lookup() {
  if (proving_) {
    return true;
  }
  if (Clock::now() >= minute_) {
    minute_ = Clock::now() + std::chrono::minutes(1);
    lookups_ = 0;
  }
  return ++lookups_ <= policy_.budgets.lookups_per_minute;
}

void Room::log(DecisionRecord record) {
  if (proving_) {
    return;
  }
  record.sandbox = id_;
  if (!record.allowed) {
    usage_.count_denial();
  }
  service_->log.add(record);
}

}  // namespace carrel::egress
