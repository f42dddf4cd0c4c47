#include "http/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/files.h"
#include "base/unix_socket.h"
#include "dns/stub_resolver.h"

namespace carrel::http {
namespace {

constexpr int kBacklog = 256;
constexpr std::chrono::seconds kLookupPatience{10};
constexpr int kFirstInherited = 3;

// Others could put something in the socket's place.
Status check_directory(int directory, const std::string& path) {
  struct stat info{};
  if (::fstat(directory, &info) != 0) {
    return system_error("look at the directory of '" + path + "'");
  }
  const bool ours = info.st_uid == ::geteuid() || info.st_uid == 0;
  if (!ours || ((info.st_mode & 022) != 0 && (info.st_mode & S_ISVTX) == 0)) {
    return Error{Code::kDenied, 0, "others can write to the directory of '" + path + "'",
                 "choose one that is yours alone"};
  }
  return {};
}

Status remove_old(int directory, const std::string& name, const std::string& path) {
  struct stat info{};
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Status() : system_error("look at '" + path + "'");
  }
  if (!S_ISSOCK(info.st_mode) || info.st_uid != ::geteuid()) {
    return Error{Code::kConflict, 0, "'" + path + "' is there and no socket of yours",
                 "choose another path"};
  }
  if (::unlinkat(directory, name.c_str(), 0) != 0) {
    return system_error("remove the old socket '" + path + "'");
  }
  return {};
}

std::string address_text(const sockaddr_storage& address, std::uint16_t& port) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(&address);
    port = ntohs(six->sin6_port);
    ::inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(port);
  }
  const auto* four = reinterpret_cast<const sockaddr_in*>(&address);
  port = ntohs(four->sin_port);
  ::inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(port);
}

Result<Listener> describe(UniqueFd socket) {
  Listener listener;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return system_error("look at a socket that was passed");
  }
  if (address.ss_family == AF_UNIX) {
    listener.name = reinterpret_cast<const sockaddr_un*>(&address)->sun_path;
  } else if (address.ss_family == AF_INET || address.ss_family == AF_INET6) {
    listener.kind = Listener::Kind::kTcp;
    listener.name = address_text(address, listener.port);
  } else {
    return Error{Code::kInvalid, 0, "a socket that was passed is neither unix nor TCP", {}};
  }
  listener.socket = std::move(socket);
  return listener;
}

Result<Listener> listen_at(const dns::SocketAddress& address) {
  const bool six = address.storage.ss_family == AF_INET6;
  UniqueFd socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!socket.valid()) {
    return system_error("make a socket");
  }
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (six) {
    (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return system_error("listen on port " + std::to_string(address.port()),
                        "another program may have it");
  }
  return describe(std::move(socket));
}

}  // namespace

Result<Listener> listen_on_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (!path.starts_with('/') || slash + 1 == path.size()) {
    return Error{Code::kInvalid, 0, "the socket '" + path + "' is no absolute path", {}};
  }
  const std::string name = path.substr(slash + 1);
  CARREL_ASSIGN(UniqueFd directory, open_at(AT_FDCWD, slash == 0 ? "/" : path.substr(0, slash),
                                            O_RDONLY | O_DIRECTORY));
  CARREL_TRY(check_directory(directory.get(), path));
  CARREL_TRY(remove_old(directory.get(), name, path));
  Listener listener;
  listener.socket = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = socket_address(directory.get(), name);
  const mode_t before = ::umask(0177);
  const bool bound = listener.socket.valid() &&
                     ::bind(listener.socket.get(), reinterpret_cast<const sockaddr*>(&address),
                            sizeof address) == 0;
  ::umask(before);
  if (!bound || ::listen(listener.socket.get(), kBacklog) != 0) {
    return system_error("listen on '" + path + "'");
  }
  listener.name = path;
  return listener;
}

Result<std::vector<Listener>> listen_on_host(const std::string& host, std::uint16_t port) {
  const dns::Patience patience{.deadline = std::chrono::steady_clock::now() + kLookupPatience};
  auto addresses = dns::resolve(host, patience);
  if (!addresses.ok()) {
    addresses.error().code = Code::kInvalid;
    addresses.error().message =
        "'" + host + "' is no address of this host: " + addresses.error().message;
    return addresses.error();
  }
  std::vector<Listener> listeners;
  Error failure{Code::kInvalid, 0, "'" + host + "' has no address", {}};
  for (const dns::Address& address : addresses.value()) {
    // With any port, the second address gets that of the first.
    auto one = listen_at(
        dns::SocketAddress::of(address, listeners.empty() ? port : listeners.front().port));
    if (one.ok()) {
      listeners.push_back(std::move(one.value()));
    } else {
      failure = one.error();
    }
  }
  if (listeners.empty()) {
    return failure;
  }
  return listeners;
}

Result<std::vector<Listener>> inherited_listeners() {
  std::vector<Listener> listeners;
  const char* pid = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr || std::to_string(::getpid()) != pid) {
    return listeners;
  }
  int sockets = 0;
  const std::string_view text(count);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), sockets);
  if (error != std::errc() || end != text.data() + text.size() || sockets < 0 || sockets > 16) {
    return Error{Code::kInvalid, 0, "LISTEN_FDS is '" + std::string(text) + "'", {}};
  }
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  ::unsetenv("LISTEN_FDNAMES");
  for (int fd = kFirstInherited; fd < kFirstInherited + sockets; ++fd) {
    UniqueFd socket(fd);
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || ::fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
      return system_error("take over socket " + std::to_string(fd));
    }
    CARREL_ASSIGN(Listener listener, describe(std::move(socket)));
    listener.inherited = true;
    listeners.push_back(std::move(listener));
  }
  return listeners;
}

Result<uid_t> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return system_error("ask who has connected");
  }
  return peer.uid;
}

}  // namespace carrel::http
