#include "egress/parent_proxy.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "base/base64.h"

namespace carrel::egress {

namespace {

constexpr std::size_t kLongestAnswer = 8U << 10;

Error refused(const ParentProxy& proxy, const std::string& what) {
  return Error{Code::kUnavailable, 0, "the proxy " + proxy.text() + " " + what, {}};
}

// Exactly so many bytes. False: they did not come.
Task<bool> read_whole(Watched& from, std::span<std::uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto n = co_await read_some(from, bytes, deadline);
    if (n <= 0) {
      co_return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  co_return true;
}

// The head of an answer, and no byte after it: what follows is not the proxy's. Empty: none came.
Task<std::string> read_head(Watched& from, Deadline deadline) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  std::string head;
  std::array<char, 1024> buffer;
  while (head.size() < kLongestAnswer) {
    const ssize_t peeked = ::recv(from.fd(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EINTR)) {
      co_return std::string();
    }
    if (peeked < 0) {
      const Woken woken = co_await from.readable(deadline);
      if (woken == Woken::kLate) {
        co_return std::string();
      }
      continue;
    }
    const std::size_t before = head.size();
    head.append(buffer.data(), static_cast<std::size_t>(peeked));
    const std::size_t end = head.find(kEnd, before < kEnd.size() ? 0 : before - kEnd.size());
    if (end != std::string::npos) {
      head.resize(end + kEnd.size());
    }
    (void)::recv(from.fd(), buffer.data(), head.size() - before, MSG_DONTWAIT);
    if (end != std::string::npos) {
      co_return head;
    }
  }
  co_return std::string();
}

Task<Status> ask_http(Watched& connection, ParentProxy proxy, policy::Host host, std::uint16_t port,
                      Deadline deadline) {
  const std::string place = policy::endpoint_text(host, port);
  std::string request = "CONNECT " + place + " HTTP/1.1\r\nHost: " + place + "\r\n";
  if (!proxy.user.empty()) {
    request += "Proxy-Authorization: Basic " + base64(proxy.user + ":" + proxy.password) + "\r\n";
  }
  request += "\r\n";
  const bool sent = co_await write_whole(connection, bytes_of(request), deadline);
  if (!sent) {
    co_return refused(proxy, "does not listen");
  }
  const std::string head = co_await read_head(connection, deadline);
  // "HTTP/1.x NNN"
  if (head.size() < 12 || !head.starts_with("HTTP/1.") || head[8] != ' ') {
    co_return refused(proxy, "does not answer");
  }
  if (head[9] != '2') {
    co_return refused(proxy, "answers " + head.substr(9, 3));
  }
  co_return Status();
}

std::string socks_request(const policy::Host& host, std::uint16_t port) {
  std::string request("\x05\x01\x00", 3);
  if (const policy::IpAddress* address = host.address()) {
    request += address->is_v4() ? '\x01' : '\x04';
    request += as_text(address->bytes());
  } else {
    request += '\x03';
    request += static_cast<char>(host.text().size());
    request += host.text();
  }
  request += static_cast<char>(port >> 8);
  request += static_cast<char>(port & 0xff);
  return request;
}

// RFC 1929.
Task<bool> log_in(Watched& connection, ParentProxy proxy, Deadline deadline) {
  std::string login = "\x01";
  login += static_cast<char>(proxy.user.size());
  login += proxy.user;
  login += static_cast<char>(proxy.password.size());
  login += proxy.password;
  const bool sent = co_await write_whole(connection, bytes_of(login), deadline);
  std::array<std::uint8_t, 2> answer{};
  if (!sent) {
    co_return false;
  }
  const bool came = co_await read_whole(connection, answer, deadline);
  co_return came&& answer[1] == 0;
}

Task<Status> ask_socks(Watched& connection, ParentProxy proxy, policy::Host host,
                       std::uint16_t port, Deadline deadline) {
  const std::uint8_t method = proxy.user.empty() ? 0 : 2;
  const std::array<std::uint8_t, 3> greeting = {5, 1, method};
  std::array<std::uint8_t, 2> chosen{};
  const bool greeted = co_await write_whole(connection, greeting, deadline);
  if (!greeted) {
    co_return refused(proxy, "does not listen");
  }
  const bool answered = co_await read_whole(connection, chosen, deadline);
  if (!answered || chosen[0] != 5 || chosen[1] != method) {
    co_return refused(proxy, proxy.user.empty() ? "wants a login" : "wants another login");
  }
  if (method == 2) {
    const bool known = co_await log_in(connection, proxy, deadline);
    if (!known) {
      co_return refused(proxy, "does not know the login");
    }
  }
  const std::string request = socks_request(host, port);
  const bool asked = co_await write_whole(connection, bytes_of(request), deadline);
  std::array<std::uint8_t, 5> head{};
  if (!asked) {
    co_return refused(proxy, "ended");
  }
  const bool replied = co_await read_whole(connection, head, deadline);
  if (!replied || head[0] != 5) {
    co_return refused(proxy, "does not answer");
  }
  if (head[1] != 0) {
    co_return refused(proxy, "refuses, with code " + std::to_string(head[1]));
  }
  // What it is bound to: an address, one byte of which is here, and a port.
  const std::size_t rest = head[3] == 1 ? 5 : head[3] == 4 ? 17 : head[3] == 3 ? head[4] + 2U : 0U;
  std::vector<std::uint8_t> bound(rest);
  const bool whole = co_await read_whole(connection, bound, deadline);
  if (!whole || rest == 0) {
    co_return refused(proxy, "does not answer");
  }
  co_return Status();
}

}  // namespace

Task<Status> ask_parent(Watched& connection, ParentProxy proxy, policy::Host host,
                        std::uint16_t port, Deadline deadline) {
  if (proxy.kind == ParentProxy::Kind::kHttp) {
    const Status asked = co_await ask_http(connection, proxy, host, port, deadline);
    co_return asked;
  }
  const Status asked = co_await ask_socks(connection, proxy, host, port, deadline);
  co_return asked;
}

}  // namespace carrel::egress
