#pragma once

#include "guest/captive.h"

// A captive network that a nursery made before anybody asked for one: to make it takes as long as
// half a sandbox, and the kernel lets only one process at a time change a network.
//
// CRITICAL: a sandbox that has a way out gets a network in which nobody was before it, and which
// nobody gets after it.
namespace carrel::guest {

class CaptiveStock {
 public:
  // Makes one, if there is none, and tries it: that a connection to somewhere arrives at its
  // sockets, with where it was meant to go. This process is in it afterwards. If that does not
  // work, there is none, and whoever needs one makes it himself and says why not.
  void prepare(const protocol::Captive& captive);
  // One made with exactly these messages: its namespace, to be closed by the caller; -1: there is
  // none. Its sockets are in `sockets`.
  int take(const protocol::Captive& captive, CaptiveSockets& sockets);
  // Lets go of it.
  void forget();

 private:
  int network_ = -1;
  protocol::Captive captive_;  // the nursery's, as long as it lives
  CaptiveSockets sockets_;
};

}  // namespace carrel::guest
