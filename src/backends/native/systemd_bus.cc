#include "backends/native/systemd_bus.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "backends/native/dbus_message.h"

namespace carrel::native {

namespace {

constexpr char kManagerName[] = "org.freedesktop.systemd1";
constexpr std::size_t kLongestAuthLine = 1024;
constexpr int kMostOtherMessages = 1000;  // signals that arrive before an answer
// The guests do not act on a polite signal: at a logout or shutdown nobody waits for them long.
constexpr std::uint64_t kStopUsec = 5'000'000;

using Clock = std::chrono::steady_clock;

Error too_slow() {
  return Error{Code::kTimeout, 0, "the service manager does not answer in time", {}};
}

Error hung_up() {
  return Error{Code::kUnavailable, 0, "the service manager closed the connection", {}};
}

// Waits until the socket is ready or the deadline is over.
Status wait_until(int socket, short events, BusDeadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      return too_slow();
    }
    pollfd wait{socket, events, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) {
      return {};
    }
    if (ready < 0 && errno != EINTR) {
      return system_error("wait for the service manager");
    }
  }
}

Status send_all(int socket, std::string_view data, BusDeadline deadline) {
  while (!data.empty()) {
    const ssize_t sent = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const int reason = sent < 0 ? errno : 0;
    if (reason == EAGAIN) {
      CARREL_TRY(wait_until(socket, POLLOUT, deadline));
    } else if (reason != 0 && reason != EINTR) {
      return hung_up();
    }
    data.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
  }
  return {};
}

// Reads until `buffer` has at least `size` bytes. What arrives after them stays in the buffer, too.
Status receive_until(int socket, std::string& buffer, std::size_t size, BusDeadline deadline) {
  std::array<char, 4096> piece;
  while (buffer.size() < size) {
    CARREL_TRY(wait_until(socket, POLLIN, deadline));
    const ssize_t got = ::recv(socket, piece.data(), piece.size(), MSG_DONTWAIT);
    const int reason = got < 0 ? errno : 0;
    if (got == 0 || (reason != 0 && reason != EAGAIN && reason != EINTR)) {
      return hung_up();
    }
    buffer.append(piece.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  return {};
}

class Connection {
 public:
  Connection(int socket, BusDeadline deadline) : socket_(socket), deadline_(deadline) {}

  // EXTERNAL: the kernel tells the other side who we are.
  Status authenticate() {
    std::string hex;
    for (char digit : std::to_string(::geteuid())) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[static_cast<unsigned char>(digit) >> 4U];
      hex += kDigits[static_cast<unsigned char>(digit) & 0xfU];
    }
    CARREL_TRY(
        send_all(socket_, std::string(1, '\0') + "AUTH EXTERNAL " + hex + "\r\n", deadline_));
    std::size_t end = 0;
    while ((end = received_.find("\r\n")) == std::string::npos) {
      if (received_.size() > kLongestAuthLine) {
        return Error{Code::kInvalid, 0, "the service manager's greeting is too long", {}};
      }
      CARREL_TRY(receive_until(socket_, received_, received_.size() + 1, deadline_));
    }
    if (!received_.starts_with("OK ")) {
      return Error{Code::kDenied, 0, "the service manager does not let us in", {}};
    }
    received_.erase(0, end + 2);
    return send_all(socket_, "BEGIN\r\n", deadline_);
  }

  // Calls, and waits for the answer to this very call.
  Status call(const DbusCall& call) {
    const std::uint32_t serial = ++serial_;
    CARREL_TRY(send_all(socket_, encode_call(call, serial), deadline_));
    for (int others = 0; others < kMostOtherMessages; ++others) {
      CARREL_TRY(receive_until(socket_, received_, kDbusFixedHeader, deadline_));
      CARREL_ASSIGN(std::size_t size, dbus_message_size(received_));
      CARREL_TRY(receive_until(socket_, received_, size, deadline_));
      CARREL_ASSIGN(DbusMessage message,
                    decode_message(std::string_view(received_).substr(0, size)));
      received_.erase(0, size);
      if (message.reply_serial != serial) {
        continue;
      }
      if (message.kind == DbusKind::kReturn) {
        return {};
      }
      if (message.kind == DbusKind::kError) {
        return Error{
            Code::kUnsupported, 0, message.text.empty() ? message.error_name : message.text, {}};
      }
    }
    return too_slow();
  }

 private:
  int socket_;
  BusDeadline deadline_;
  std::uint32_t serial_ = 0;
  std::string received_;
};

}  // namespace

std::vector<BusAddress> manager_addresses(uid_t uid, const std::string& runtime_directory) {
  if (uid == 0) {
    return {{"/run/systemd/private", BusAddress::Kind::kManager},
            {"/run/dbus/system_bus_socket", BusAddress::Kind::kBus}};
  }
  const std::string directory =
      runtime_directory.starts_with('/') ? runtime_directory : "/run/user/" + std::to_string(uid);
  return {{directory + "/systemd/private", BusAddress::Kind::kManager},
          {directory + "/bus", BusAddress::Kind::kBus}};
}

std::vector<BusAddress> manager_addresses() {
  const char* directory = std::getenv("XDG_RUNTIME_DIR");
  return manager_addresses(::geteuid(), directory == nullptr ? "" : directory);
}

std::string encode_scope(const ScopeRequest& request) {
  DbusWriter writer;
  writer.string(request.unit);
  writer.string("fail");  // a unit of that name is an error
  const DbusWriter::Array properties = writer.begin_array(8);
  auto property = [&](std::string_view name, std::string_view type) {
    writer.align(8);
    writer.string(name);
    writer.signature(type);
  };
  property("Description", "s");
  writer.string(request.description);
  property("Delegate", "b");
  writer.boolean(1);
  property("CollectMode", "s");  // a scope that failed leaves no trace either
  writer.string("inactive-or-failed");
  property("TasksMax", "t");  // each sandbox has a limit of its own, and the slice above has one
  writer.u64(~std::uint64_t{0});
  property("TimeoutStopUSec", "t");
  writer.u64(kStopUsec);
  property("PIDs", "au");
  const DbusWriter::Array processes = writer.begin_array(4);
  // Whoever is at our end of the connection, which the kernel tells the manager: in a namespace of
  // processes, the number that we know would be a stranger's.
  writer.u32(0);
  writer.end_array(processes);
  writer.end_array(properties);
  writer.end_array(writer.begin_array(8));  // no auxiliary units
  return writer.data();
}

Result<UniqueFd> connect_manager(const BusAddress& address, BusDeadline deadline) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (address.path.size() >= sizeof name.sun_path) {
    return Error{Code::kInvalid, 0, "the path '" + address.path + "' is too long", {}};
  }
  std::memcpy(name.sun_path, address.path.c_str(), address.path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) {
    return system_error("make a socket");
  }
  // A unix socket connects at once, or its backlog is full (EAGAIN).
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    if (errno != EAGAIN && errno != EINTR) {
      return system_error("reach the service manager at '" + address.path + "'");
    }
    if (Clock::now() >= deadline) {
      return too_slow();
    }
    ::usleep(1000);
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return system_error("ask who is at '" + address.path + "'");
  }
  // The system's bus runs as a user of its own; its socket is in a directory of root's.
  const bool system_bus = ::geteuid() == 0 && address.kind == BusAddress::Kind::kBus;
  if (peer.uid != ::geteuid() && peer.uid != 0 && !system_bus) {
    return Error{Code::kDenied, 0, "'" + address.path + "' belongs to another user", {}};
  }
  return socket;
}

Status start_scope(int connection, BusAddress::Kind kind, const ScopeRequest& request,
                   BusDeadline deadline) {
  Connection bus(connection, deadline);
  CARREL_TRY(bus.authenticate());
  DbusCall call;
  if (kind == BusAddress::Kind::kBus) {
    DbusCall hello;
    hello.destination = "org.freedesktop.DBus";
    hello.path = "/org/freedesktop/DBus";
    hello.interface = "org.freedesktop.DBus";
    hello.member = "Hello";
    CARREL_TRY(bus.call(hello));
    call.destination = kManagerName;
  }
  const std::string body = encode_scope(request);
  call.path = "/org/freedesktop/systemd1";
  call.interface = "org.freedesktop.systemd1.Manager";
  call.member = "StartTransientUnit";
  call.signature = kStartTransientUnitSignature;
  call.body = body;
  return bus.call(call);
}

}  // namespace carrel::native
