#pragma once

#include <string>
#include <utility>
#include <vector>

#include "egress/io.h"
#include "egress/scrubber.h"
#include "egress/stream.h"
#include "http/response.h"

namespace carrel::egress {

// What those who send a client's requests and those who bring the answers know of each other. There
// is one request at a time: the next one waits for the answer.
struct Exchange {
  enum class State {
    kIdle,
    kAsked,   // a request went out, and its answer has not ended
    kTunnel,  // both have agreed on another protocol
    kEnded,   // there will be no answers any more
  };

  explicit Exchange(Stream& with) : server(&with) {}

  void settle(State now) {
    state = now;
    if (waiting != nullptr) {
      std::exchange(waiting, nullptr)->set();
    }
  }

  Stream* server;
  State state = State::kIdle;
  http::Method method = http::Method::kGet;  // of what was asked, as far as an answer depends on it
  bool upgrades = false;                     // it was asked for another protocol
  bool refused = false;                      // the client is told so, and not by the server
  Signal* waiting = nullptr;                 // somebody's, who waits for the answer
  Scrubber scrubber;
  std::vector<std::uint8_t> came;  // from the server, and not passed on yet
};

// Waits for the end of the answer, if one is missing.
inline Task<void> answered(Exchange& exchange) {
  if (exchange.state == Exchange::State::kAsked) {
    Signal done;
    exchange.waiting = &done;
    co_await done;
  }
}

}  // namespace carrel::egress
