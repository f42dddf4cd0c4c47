#include <cstring>
#include <utility>

#include "egress/parent_proxy.h"
#include "egress/passage.h"

// Where everything goes through a proxy of the operator's.
namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kParentPatience{15};

// A name that would mean the proxy's own machine.
bool is_the_proxy_itself(const policy::Host& host) {
  return host.is_name() && (host.text() == "localhost" || host.text().ends_with(".localhost"));
}

}  // namespace

Task<std::unique_ptr<Watched>> Passage::dial_parent(policy::Verdict verdict, ParentProxy proxy,
                                                    std::optional<DohServer> resolver) {
  // CRITICAL: an address is judged here, as if it were dialled here. A name is looked up by the
  // proxy, and where it leads is the proxy's to judge.
  if (const policy::IpAddress* literal = live_.flow.host.address()) {
    policy::Verdict guard =
        may_dial(room_->policy(), live_.flow, *literal, room_->service().own_addresses());
    if (!guard.allowed()) {
      co_await refuse(std::move(guard));
      co_return nullptr;
    }
  }
  if (is_the_proxy_itself(live_.flow.host)) {
    policy::Verdict why = denied("the name means the machine itself");
    co_await refuse(std::move(why));
    co_return nullptr;
  }
  std::vector<policy::IpAddress> addresses;
  if (const policy::IpAddress* literal = proxy.host.address()) {
    addresses.push_back(*literal);
  } else {
    auto resolved = co_await room_->service().resolver.resolve(proxy.host, std::move(resolver));
    if (!resolved.ok()) {
      policy::Verdict why =
          denied("cannot find the proxy " + proxy.text() + ": " + resolved.error().message);
      note("connect", why, resolved.error().hint);
      co_await tell_refused(std::move(why));
      co_return nullptr;
    }
    addresses = std::move(resolved.value());
  }
  const Deadline deadline = in(kParentPatience);
  policy::Verdict last = denied("the proxy has no address");
  for (const policy::IpAddress& address : addresses) {
    auto fd = make_socket(address, SOCK_STREAM);
    if (!fd.ok()) {
      last = denied(fd.error().to_string());
      continue;
    }
    auto server = std::make_unique<Watched>(room_->service().loop, std::move(fd.value()));
    live_.server = server.get();
    const int result =
        co_await connect_to(*server, SocketAddress::of(address, proxy.port), deadline);
    if (result != 0) {
      live_.server = nullptr;
      last = denied("cannot connect to the proxy " + proxy.text() + ": " + std::strerror(-result));
      continue;
    }
    const Status asked =
        co_await ask_parent(*server, proxy, live_.flow.host, live_.flow.port, deadline);
    if (asked.ok() && live_.ended_by.empty()) {
      connected_ = true;
      note("connect", verdict, "through " + proxy.text());
      co_return server;
    }
    live_.server = nullptr;
    last = denied(asked.ok() ? live_.ended_by : asked.error().message);
    break;
  }
  co_await refuse(std::move(last));
  co_return nullptr;
}

}  // namespace carrel::egress
