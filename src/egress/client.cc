#include "egress/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "storage/background.h"

namespace carrel::egress {

namespace {

constexpr int kAnswerMs = 15'000;
constexpr std::size_t kLargestAnswer = 64U << 10;

Result<nlohmann::json> ask_at(int socket, const std::string& operation, const std::string& id) {
  const nlohmann::json request = {{"op", operation}, {"id", id}};
  const std::string line = request.dump() + "\n";
  const Error gone{Code::kGone, 0, "the egress process ended", "try again"};
  if (::send(socket, line.data(), line.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(line.size())) {
    return gone;
  }
  std::string text;
  char buffer[1024];
  while (text.empty() || text.back() != '\n') {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, kAnswerMs) == 0) {
      return Error{Code::kTimeout, 0, "the egress process does not answer", {}};
    }
    const ssize_t n = ::read(socket, buffer, sizeof buffer);
    if (n <= 0 || text.size() > kLargestAnswer) {
      return gone;
    }
    text.append(buffer, static_cast<std::size_t>(n));
  }
  auto answer = nlohmann::json::parse(text, nullptr, false);
  if (!answer.is_object()) {
    return Error{Code::kSystem, 0, "the egress process's answer makes no sense", {}};
  }
  if (answer.contains("error")) {
    return Error{Code::kUnavailable, 0, answer["error"].get<std::string>(), {}};
  }
  return answer;
}

// The process may leave, or be killed, between the connection and the answer.
Result<nlohmann::json> ask(const storage::Home& home, const std::string& operation,
                           const std::string& id) {
  constexpr int kTries = 10;
  Result<nlohmann::json> answer = Error{Code::kGone, 0, "the egress process ended", "try again"};
  for (int tries = 0; tries < kTries && !answer.ok() && answer.error().code == Code::kGone;
       ++tries) {
    CARREL_ASSIGN(const UniqueFd socket, storage::reach_background(home, kProcess));
    answer = ask_at(socket.get(), operation, id);
  }
  return answer;
}

}  // namespace

Status revive(const storage::Home& home, const std::string& id) {
  CARREL_TRY(ask(home, "attach", id));
  return {};
}

Status change(const storage::Home& home, const std::string& id, policy::NetworkPolicy policy) {
  CARREL_ASSIGN(Registration registration, read_registration(home, id));
  registration.policy = std::move(policy);
  CARREL_TRY(write_registration(home, registration));
  return revive(home, id);
}

Result<Usage> usage(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(const nlohmann::json answer, ask(home, "usage", id));
  Usage result;
  result.bytes_out = answer.value("bytes_out", std::uint64_t{0});
  result.bytes_in = answer.value("bytes_in", std::uint64_t{0});
  result.connections = answer.value("connections", std::uint64_t{0});
  result.live = answer.value("live", std::uint64_t{0});
  result.denied = answer.value("denied", std::uint64_t{0});
  return result;
}

}  // namespace carrel::egress
