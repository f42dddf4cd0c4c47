#pragma once

#include <cstddef>

// The networks that a nursery gave to its sandboxes, and may give away once more. To make a network
// namespace and to destroy it is a fifth of what a sandbox costs.
//
// CRITICAL: no two sandboxes share a network, and none gets one that another left its mark on.
// Nobody inside could change a network's settings: what he can leave are sockets that somebody
// still holds, the kernel's entries for connections that ended, and counters. So a network is given
// away again only when the first process of its sandbox has ended (then all have), when there is no
// socket in it, and when its tables and its counters of packets are what they are in a network that
// is new.
namespace carrel::guest {

// A network namespace, with the tables that show its state open: to open them again for each look
// would take longer than to read them.
struct Network {
  static constexpr std::size_t kTables = 10;
  int space = -1;
  int tables[kTables] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
};

class SpareNetworks {
 public:
  // Moves this process into a network that nobody uses or has used, see make_network(). False with
  // errno.
  bool enter();
  // That network is the sandbox's whose first process this is.
  void lend(int pidfd);
  // The last one that was lent will be changed for its sandbox, and is nobody else's after that.
  void keep_from_others();
  // Lets go of all.
  void forget();

 private:
  static constexpr std::size_t kMost = 8;

  struct Lent {
    Network network;
    int pidfd = -1;
  };

  bool reuse();
  static void let_go(Lent& lent);

  Lent lent_[kMost];
  std::size_t last_ = kMost;  // of those, the one that was lent last
  Network network_;           // that this process is in
};

}  // namespace carrel::guest
