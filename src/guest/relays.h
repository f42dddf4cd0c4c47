#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "protocol/message.h"

// Connections to ports of a sandbox none of whose sockets can be passed to the host: one process of
// the workload's carries their bytes. The guest hands it the connections from the host, each with
// the port that is meant, and has nothing to do with them any more.
namespace carrel::guest {

inline constexpr std::size_t kMostRelays = 64;         // at the same time; others wait
inline constexpr std::size_t kRelayPiece = 32U << 10;  // the most that waits, each way

// What the guest says beside a connection.
struct RelayOrder {
  std::uint32_t channel = 0;  // to answer on
  protocol::Connect wanted;
};
inline constexpr std::size_t kRelayOrder = 8;
void write_relay_order(const RelayOrder& order, unsigned char* data);
bool parse_relay_order(std::string_view data, RelayOrder& order);

// Hands over; the caller's own descriptor stays his. 0 or a negative errno: -EPIPE where nobody
// takes it any more, -EAGAIN where it is not taken now.
int hand_to_relays(int door, const RelayOrder& order, int connection);

// The life of that process: takes what comes through the door until that is closed, or until there
// was nothing to do for so long.
[[noreturn]] void serve_relays(int door, int idle_ms);

}  // namespace carrel::guest
