#include "egress/request.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/unix_socket.h"

namespace carrel::egress {

namespace {

constexpr std::size_t kLargestHead = 4096;

// A text of the object; empty: it has none.
std::string text_in(const nlohmann::json& object, const char* name) {
  const bool has = object.is_object() && object.contains(name) && object[name].is_string();
  return has ? object[name].get<std::string>() : std::string();
}

std::uint32_t number_in(const nlohmann::json& object, const char* name) {
  const bool has = object.is_object() && object.contains(name) && object[name].is_number_unsigned();
  return has ? object[name].get<std::uint32_t>() : 0;
}

}  // namespace

Task<bool> receive_request(Watched& client, Request& request, Deadline deadline) {
  std::string text;
  std::array<char, 1024> buffer;
  while (text.find('\n') == std::string::npos && text.size() < kLargestHead) {
    const ssize_t n = receive_with(client.fd(), buffer, request.descriptors, MSG_DONTWAIT);
    if (n > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      co_return false;
    }
    const Woken woken = co_await client.readable(deadline);
    if (woken == Woken::kLate) {
      co_return false;
    }
  }
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) {
    co_return false;
  }
  const auto object = nlohmann::json::parse(text.substr(0, end), nullptr, false);
  request.operation = text_in(object, "op");
  request.id = text_in(object, "id");
  request.present = number_in(object, "sockets");
  co_return true;
}

}  // namespace carrel::egress
