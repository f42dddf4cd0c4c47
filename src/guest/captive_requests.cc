#include "guest/captive_requests.h"

#include <span>
#include <string_view>

#include "guest/captive.h"
#include "guest/descriptors.h"
#include "protocol/message.h"

namespace carrel::guest {

using protocol::FrameType;

bool hand_out_sockets(Guest& guest, std::uint32_t client, std::uint32_t channel) {
  Client& connection = guest.clients[client];
  // The answer goes out at once or never: nothing may be waiting before it.
  connection.flush();
  if (guest.boot.captive.empty() || connection.has_output()) {
    return false;
  }
  CaptiveSockets sockets;
  int result = sockets.make();
  unsigned char fields[8];
  protocol::Writer writer(fields);
  writer.u32(static_cast<std::uint32_t>(-result));
  writer.u32(sockets.present);
  std::string_view answer(reinterpret_cast<const char*>(fields), sizeof fields);
  if (result != 0) {
    return connection.send(channel, FrameType::kNetworkSockets, answer);
  }
  bool sent =
      send_with_descriptors(connection.fd(), {sizeof fields, channel, FrameType::kNetworkSockets},
                            answer, std::span<const int>(sockets.descriptors, sockets.count));
  sockets.close_all();
  return sent;
}

}  // namespace carrel::guest
