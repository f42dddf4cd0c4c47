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

// Sockets, also of other families and such as are on their way through a socket; connections that
// ended leave their packets in the counters.
constexpr const char* kTables[] = {"sockstat6", "unix",  "snmp",       "snmp6",    "netstat",
                                   "dev",       "route", "ipv6_route", "if_inet6", "ip6_flowlabel"};

// What it is in a network that is new; empty until the first was made.
NetworkState g_new;
NetworkState g_seen;

bool append(NetworkState& state, const char* table) {
  Text<64> path;
  path.add("/proc/self/net/").add(table);
  int fd = openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return errno == ENOENT;  // without IPv6
  }
  ssize_t n = 0;
  do {
    n = read(fd, state.text + state.size, sizeof state.text - state.size);
    state.size += n > 0 ? static_cast<std::size_t>(n) : 0;
  } while (n > 0);
  close(fd);
  return n == 0 && state.size < sizeof state.text;
}

// How many sockets there are, of all families. The lines below it have numbers of the whole host.
bool append_sockets(NetworkState& state) {
  const std::size_t start = state.size;
  if (!append(state, "sockstat")) {
    return false;
  }
  const std::string_view first(state.text + start, state.size - start);
  const std::size_t end = first.find('\n');
  state.size = end == std::string_view::npos ? start : start + end;
  return state.size > start;
}

bool has_ended(int pidfd) {
  struct pollfd end{pidfd, POLLIN, 0};
  return poll(&end, 1, 0) == 1 && (end.revents & POLLIN) != 0;
}

// CRITICAL: a network whose state is not known is not like a new one.
bool is_like_new() {
  return g_new.size > 0 && look_at_network(g_seen) && g_seen.size == g_new.size &&
         memcmp(g_seen.text, g_new.text, g_new.size) == 0;
}

void close_descriptor(int& fd) {
  if (fd >= 0) {
    close(fd);
    fd = -1;
  }
}

}  // namespace

bool look_at_network(NetworkState& state) {
  state.size = 0;
  bool known = append_sockets(state);
  for (const char* table : kTables) {
    known = known && append(state, table);
  }
  state.size = known ? state.size : 0;
  return known;
}

void SpareNetworks::let_go(Lent& lent) {
  close_descriptor(lent.network);
  close_descriptor(lent.pidfd);
}

bool SpareNetworks::reuse() {
  for (Lent& lent : lent_) {
    if (lent.pidfd < 0 || !has_ended(lent.pidfd)) {
      continue;
    }
    if (setns(lent.network, CLONE_NEWNET) == 0 && is_like_new()) {
      network_ = lent.network;
      lent.network = -1;
      let_go(lent);
      return true;
    }
    let_go(lent);
  }
  return false;
}

bool SpareNetworks::enter() {
  last_ = kMost;
  close_descriptor(network_);
  if (reuse()) {
    return true;
  }
  if (!make_network()) {
    return false;
  }
  if (g_new.size == 0) {
    look_at_network(g_new);
  }
  network_ = openat(AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  return true;
}

void SpareNetworks::lend(int pidfd) {
  for (std::size_t i = 0; i < kMost && network_ >= 0; ++i) {
    if (lent_[i].pidfd >= 0) {
      continue;
    }
    lent_[i].pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, kControl + 1);
    if (lent_[i].pidfd >= 0) {
      lent_[i].network = network_;
      network_ = -1;
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
