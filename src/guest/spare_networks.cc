#include "guest/spare_networks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "guest/maker.h"
#include "guest/network.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

// How many sockets there are, of all families; the lines below that have numbers of the whole host.
constexpr const char* kSockets = "sockstat";
// Sockets, also of other families and such as are on their way through a socket; connections that
// ended leave their packets in the counters. The longest table, netstat, says how packets fared
// that are counted in these already.
constexpr const char* kTables[Network::kTables] = {
    kSockets, "sockstat6", "unix",       "snmp",     "snmp6",
    "dev",    "route",     "ipv6_route", "if_inet6", "ip6_flowlabel"};

// What can be seen of a network from inside.
struct NetworkState {
  char text[16U << 10];
  std::size_t size = 0;
};

// What it is in a network that is new; empty until the first was made.
NetworkState g_new;
NetworkState g_seen;

void close_descriptor(int& fd) {
  if (fd >= 0) {
    close(fd);
    fd = -1;
  }
}

void close_network(Network& network) {
  close_descriptor(network.space);
  for (int& table : network.tables) {
    close_descriptor(table);
  }
}

// The one that this process is in. Without one of its tables it is nobody else's later.
void open_network(Network& network) {
  network.space = openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  for (std::size_t i = 0; i < Network::kTables; ++i) {
    Text<64> path;
    path.add("/proc/self/net/").add(kTables[i]);
    network.tables[i] = openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
    if (network.tables[i] < 0 && errno != ENOENT) {  // without IPv6 some are missing
      close_network(network);
      return;
    }
  }
}

bool append(NetworkState& state, int table) {
  const std::size_t start = state.size;
  ssize_t n = 0;
  do {
    n = pread(table, state.text + state.size, sizeof state.text - state.size,
              static_cast<off_t>(state.size - start));
    state.size += n > 0 ? static_cast<std::size_t>(n) : 0;
  } while (n > 0);
  return n == 0 && state.size < sizeof state.text;
}

bool keep_first_line(NetworkState& state, std::size_t start) {
  const std::string_view text(state.text + start, state.size - start);
  const std::size_t end = text.find('\n');
  state.size = end == std::string_view::npos ? start : start + end;
  return state.size > start;
}

// False when it is not known.
bool look_at_network(const Network& network, NetworkState& state) {
  state.size = 0;
  bool known = network.space >= 0;
  for (std::size_t i = 0; i < Network::kTables && known; ++i) {
    const std::size_t start = state.size;
    known = network.tables[i] < 0 || append(state, network.tables[i]);
    if (kTables[i] == kSockets) {
      known = known && keep_first_line(state, start);
    }
  }
  state.size = known ? state.size : 0;
  return known;
}

bool has_ended(int pidfd) {
  struct pollfd end{pidfd, POLLIN, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & POLLIN) != 0;
}

// CRITICAL: a network whose state is not known is not like a new one.
bool is_like_new(const Network& network) {
  return g_new.size > 0 && look_at_network(network, g_seen) && g_seen.size == g_new.size &&
         memcmp(g_seen.text, g_new.text, g_new.size) == 0;
}

}  // namespace

void SpareNetworks::let_go(Lent& lent) {
  close_network(lent.network);
  close_descriptor(lent.pidfd);
}

bool SpareNetworks::reuse() {
  for (Lent& lent : lent_) {
    if (lent.pidfd < 0 || !has_ended(lent.pidfd)) {
      continue;
    }
    if (is_like_new(lent.network) && setns(lent.network.space, CLONE_NEWNET) == 0) {
      network_ = lent.network;
      lent.network = Network{};
      let_go(lent);
      return true;
    }
    let_go(lent);
  }
  return false;
}

bool SpareNetworks::enter() {
  last_ = kMost;
  close_network(network_);
  if (reuse()) {
    return true;
  }
  if (!make_network()) {
    return false;
  }
  open_network(network_);
  if (g_new.size == 0) {
    look_at_network(network_, g_new);
  }
  return true;
}

void SpareNetworks::lend(int pidfd) {
  for (std::size_t i = 0; i < kMost && network_.space >= 0; ++i) {
    if (lent_[i].pidfd >= 0) {
      continue;
    }
    lent_[i].pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, kControl + 1);
    if (lent_[i].pidfd >= 0) {
      lent_[i].network = network_;
      network_ = Network{};
      last_ = i;
    }
    return;
  }
}

void SpareNetworks::keep_from_others() {
  if (last_ < kMost) {
    let_go(lent_[last_]);
  }
}

void SpareNetworks::forget() {
  for (Lent& lent : lent_) {
    let_go(lent);
  }
  last_ = kMost;
}

}  // namespace carrel::guest
