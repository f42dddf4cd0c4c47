#include "egress/doh.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "egress/dns_message.h"
#include "egress/io.h"

namespace carrel::egress {

namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr std::size_t kLongestHead = 8U << 10;

std::string request_of(const DohServer& server, std::string_view question) {
  std::string request = "POST " + server.path +
                        " HTTP/1.1\r\nHost: " + policy::endpoint_text(server.host, server.port) +
                        "\r\nContent-Type: application/dns-message\r\n"
                        "Accept: application/dns-message\r\nConnection: close\r\nContent-Length: " +
                        std::to_string(question.size()) + "\r\n\r\n";
  return request.append(question);
}

bool same_word(std::string_view one, std::string_view other) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&](char a, char b) { return lower(a) == lower(b); });
}

// The length that the head announces. Nothing: it is no head of a good answer, or has no length.
std::optional<std::size_t> length_in(std::string_view head) {
  if (!head.starts_with("HTTP/1.1 200 ") && !head.starts_with("HTTP/1.1 200\r")) {
    return std::nullopt;
  }
  std::optional<std::size_t> length;
  for (std::size_t at = head.find("\r\n"); at + 2 < head.size(); at = head.find("\r\n", at + 2)) {
    const std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !same_word(line.substr(0, colon), "content-length")) {
      continue;
    }
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    std::size_t number = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
    if (length.has_value() || read.ec != std::errc() || read.ptr != value.data() + value.size() ||
        number > dns::kLargestMessage) {
      return std::nullopt;
    }
    length = number;
  }
  return length;
}

// The body of an answer; empty: there is none that can be used.
Task<std::string> read_answer(TlsStream& stream, Deadline deadline) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  std::string text;
  std::optional<std::size_t> whole;
  std::array<std::uint8_t, 2048> buffer;
  while (!whole.has_value() || text.size() < *whole) {
    const auto n = co_await stream.read_some(buffer, deadline);
    if (n <= 0 || text.size() > kLongestHead + dns::kLargestMessage) {
      co_return std::string();
    }
    text.append(reinterpret_cast<const char*>(buffer.data()), static_cast<std::size_t>(n));
    const std::size_t end = whole.has_value() ? std::string::npos : text.find(kEnd);
    if (end != std::string::npos) {
      const auto length = length_in(std::string_view(text).substr(0, end + 2));
      if (!length.has_value()) {
        co_return std::string();
      }
      text.erase(0, end + kEnd.size());
      whole = length;
    }
  }
  text.resize(*whole);
  co_return text;
}

}  // namespace

Task<Result<dns::Answer>> ask_over_https(Loop& loop, TlsServers& servers, DohServer server,
                                         policy::IpAddress address, dns::Lookup lookup) {
  const Deadline deadline = in(kPatience);
  const std::string name = "the resolver " + policy::endpoint_text(server.host, server.port);
  auto session = servers.ask_for(server.host);
  if (!session.ok()) {
    co_return session.error();
  }
  auto fd = make_socket(address, SOCK_STREAM);
  if (!fd.ok()) {
    co_return fd.error();
  }
  Watched socket(loop, std::move(fd.value()));
  const int connected =
      co_await connect_to(socket, SocketAddress::of(address, server.port), deadline);
  if (connected != 0) {
    co_return system_error(-connected, "reach " + name);
  }
  TlsStream stream(socket, std::move(session.value()));
  const Status shaken = co_await stream.shake_hands(deadline);
  if (!shaken.ok()) {
    co_return Error{Code::kUnavailable, 0, name + ": " + shaken.error().message, {}};
  }
  lookup.id = 0;  // answers to equal questions are equal, and can be kept on the way
  const std::vector<std::uint8_t> question = dns::write_lookup(lookup);
  const std::string request = request_of(server, as_text(question));
  const bool sent = co_await stream.write_whole(bytes_of(request), deadline);
  if (!sent) {
    co_return Error{Code::kUnavailable, 0, name + " does not listen", {}};
  }
  const std::string body = co_await read_answer(stream, deadline);
  auto answer = dns::parse_answer(bytes_of(body), lookup);
  if (!answer.parsed() || answer.value.truncated) {
    co_return Error{Code::kUnavailable, 0, name + " gives no answer that makes sense", {}};
  }
  co_return std::move(answer.value);
}

}  // namespace carrel::egress
