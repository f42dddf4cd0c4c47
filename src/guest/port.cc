#include "guest/port.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/descriptors.h"
#include "guest/gvisor.h"
#include "guest/loopback.h"
#include "guest/program.h"
#include "guest/relays.h"
#include "guest/requests.h"
#include "protocol/message.h"

namespace carrel::guest {

namespace {

using protocol::FrameType;

// Sockets of another kernel than the host's are its own: none can be given to the host.
bool is_away(const Guest& guest) {
  return kernel_of(guest.boot) == Kernel::kGvisors || (guest.boot.flags & protocol::kBootAway) != 0;
}

bool answer(Client& client, std::uint32_t channel, int error) {
  unsigned char fields[4];
  protocol::Writer writer(fields);
  writer.u32(static_cast<std::uint32_t>(error));
  return client.send(channel, FrameType::kConnected,
                     {reinterpret_cast<const char*>(fields), sizeof fields});
}

// The process that carries, with the workload's rights and limits. 0 or a negative errno.
int start_relays(Guest& guest) {
  protocol::Start start;
  start.kind = protocol::StartKind::kRelays;
  start.timeout_ms = 1;  // it has none
  unsigned char buffer[128];
  protocol::Writer writer(buffer);
  protocol::write_start(writer, start);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return -errno;
  }
  // Nobody asks how it ends: its door is closed then.
  const int nothing = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
  const int result = nothing < 0
                         ? -errno
                         : spawn(guest, {reinterpret_cast<const char*>(buffer), writer.size()},
                                 {ends[1], nothing, nothing}, nothing);
  for (const int fd : {ends[1], nothing, result < 0 ? ends[0] : -1}) {
    if (fd >= 0) {
      close(fd);
    }
  }
  guest.relays = result < 0 ? -1 : ends[0];
  return result;
}

// 0 or a negative errno. One that has ended, or was ended, is replaced.
int hand_over(Guest& guest, const RelayOrder& order, int connection) {
  int result = -EPIPE;
  for (int attempt = 0; attempt < 2 && result == -EPIPE; ++attempt) {
    if (guest.relays < 0) {
      if (result = start_relays(guest); result < 0) {
        return result;
      }
    }
    result = hand_to_relays(guest.relays, order, connection);
    if (result == -EPIPE) {
      close(guest.relays);
      guest.relays = -1;
    }
  }
  return result;
}

}  // namespace

bool hand_out_connection(Guest& guest, std::uint32_t client, std::uint32_t channel,
                         std::string_view payload) {
  Client& connection = guest.clients[client];
  protocol::Connect wanted;
  // The answer goes out at once or never: nothing may be waiting before it.
  connection.flush();
  if (!protocol::parse_connect(payload, wanted) || connection.has_output()) {
    return false;
  }
  int fd = is_away(guest) ? -EOPNOTSUPP : begin_connection(wanted);
  if (fd < 0) {
    return answer(connection, channel, -fd);
  }
  const unsigned char fields[4] = {};
  bool sent = send_with_descriptors(
      connection.fd(), {sizeof fields, channel, FrameType::kConnected},
      {reinterpret_cast<const char*>(fields), sizeof fields}, std::span<const int>(&fd, 1));
  close(fd);
  return sent;
}

bool relay_connection(Guest& guest, std::uint32_t client, std::uint32_t channel,
                      std::string_view payload) {
  Client& connection = guest.clients[client];
  RelayOrder order;
  order.channel = channel;
  connection.flush();
  if (!protocol::parse_connect(payload, order.wanted) || !may_have_worker(guest, client)) {
    return false;
  }
  if (guest.freezer == kPaused) {
    return answer(connection, channel, EBUSY);
  }
  if (const int result = hand_over(guest, order, connection.fd()); result < 0) {
    return answer(connection, channel, -result);
  }
  guest.poller.remove(connection.fd());
  connection.close();
  return true;
}

}  // namespace carrel::guest
