#include "egress/relay.h"

#include <utility>

#include "egress/io.h"
#include "egress/pump.h"

namespace carrel::egress {

namespace {

// Half of a connection that nothing comes through is held by nobody else.
constexpr std::chrono::minutes kHalfClosed{10};

// Whoever waits on the other way finds both ended, and the sandbox does not take a piece for the
// whole.
void cut_both(Watched& client, Watched& server) {
  client.reset_on_close();
  server.reset_on_close();
  client.shut();
  server.shut();
}

// The other way goes on, but not without an end.
void end_one_way(Watched& client, Watched& server, Patience& patience) {
  patience.longest = kHalfClosed;
  client.rouse();
  server.rouse();
}

Task<void> carry_out(Room& room, Watched& client, Watched& server, std::vector<std::uint8_t> first,
                     Carried& carried, Patience& patience) {
  const Spend spend = [&](std::uint64_t bytes) {
    carried.out += bytes;
    return room.spend_out(bytes);
  };
  bool whole = first.empty() || spend(first.size());
  if (whole && !first.empty()) {
    whole = co_await write_whole(server, first);
  }
  if (whole) {
    whole = co_await pump(client, server, spend, patience);
  }
  if (whole) {
    end_one_way(client, server, patience);
  } else {
    cut_both(client, server);
  }
}

Task<void> carry_in(Room& room, Watched& client, Watched& server, Carried& carried,
                    Patience& patience) {
  const Spend spend = [&](std::uint64_t bytes) {
    carried.in += bytes;
    return room.spend_in(bytes);
  };
  const bool whole = co_await pump(server, client, spend, patience);
  if (whole) {
    end_one_way(client, server, patience);
  } else {
    cut_both(client, server);
  }
}

}  // namespace

Task<void> relay(Room& room, Watched& client, Watched& server, std::vector<std::uint8_t> first,
                 Carried& carried) {
  Signal inward;
  Patience patience;
  spawn(signalled(carry_in(room, client, server, carried, patience), inward));
  co_await carry_out(room, client, server, std::move(first), carried, patience);
  co_await inward;
}

}  // namespace carrel::egress
