#include "egress/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/unix_socket.h"
#include "storage/background.h"

namespace carrel::egress {

namespace {

constexpr int kAnswerMs = 35'000;  // a guest may be booting
constexpr int kEnsureMs = 2000;
constexpr std::size_t kLargestAnswer = 64U << 10;
constexpr int kTries = 10;

Error ended() { return {Code::kGone, 0, "the egress process ended", "try again"}; }

Status tell(int socket, const nlohmann::json& request, const std::vector<int>& descriptors = {}) {
  const std::string line = request.dump() + "\n";
  return send_with(socket, line, descriptors, MSG_NOSIGNAL) == static_cast<ssize_t>(line.size())
             ? Status()
             : Status(ended());
}

Result<nlohmann::json> hear(int socket, int patience_ms = kAnswerMs) {
  std::string text;
  char buffer[1024];
  while (text.empty() || text.back() != '\n') {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, patience_ms) == 0) {
      return Error{Code::kTimeout, 0, "the egress process does not answer", {}};
    }
    const ssize_t n = ::read(socket, buffer, sizeof buffer);
    if (n <= 0 || text.size() > kLargestAnswer) {
      return ended();
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
  Result<nlohmann::json> answer = ended();
  for (int tries = 0; tries < kTries && !answer.ok() && answer.error().code == Code::kGone;
       ++tries) {
    CARREL_ASSIGN(const UniqueFd socket, storage::reach_background(home, kProcess));
    if (tell(socket.get(), {{"op", operation}, {"id", id}}).ok()) {
      answer = hear(socket.get());
    }
  }
  return answer;
}

}  // namespace

Status revive(const storage::Home& home, const std::string& id) {
  CARREL_TRY(ask(home, "attach", id));
  return {};
}

// What is done with the sandbox next does not wait for an egress process that stands still.
Status ensure(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(UniqueFd socket, storage::reach_background(home, kProcess));
  Status told = tell(socket.get(), {{"op", "ensure"}, {"id", id}});
  Result<nlohmann::json> answer = told.ok() ? hear(socket.get(), kEnsureMs) : told.error();
  if (!answer.ok() && answer.error().code == Code::kGone) {  // it was just ending
    CARREL_TRY(ask(home, "ensure", id));
    return {};
  }
  return answer.ok() ? Status() : Status(answer.error());
}

Status Attendance::ask(int guest, const HandedSockets& sockets) {
  CARREL_ASSIGN(socket_, storage::reach_background(*home_, kProcess));
  nlohmann::json request = {{"op", "attend"}, {"id", id_}};
  std::vector<int> descriptors;
  if (!sockets.descriptors.empty()) {
    request["sockets"] = sockets.present;
    descriptors.push_back(guest);
    for (const UniqueFd& socket : sockets.descriptors) {
      descriptors.push_back(socket.get());
    }
  }
  return tell(socket_.get(), request, descriptors);
}

// The sockets are tried once: the next process would find them used, and gets others from the
// guest.
Result<Attendance> Attendance::begin(const storage::Home& home, const std::string& id, int guest,
                                     HandedSockets sockets) {
  Attendance attendance(home, id);
  const Status asked = attendance.ask(guest, sockets);
  if (!asked.ok() && asked.error().code != Code::kGone) {
    return asked.error();
  }
  return attendance;
}

Status Attendance::finish() {
  Result<nlohmann::json> answer = hear(socket_.get());
  for (int tries = 1; tries < kTries && !answer.ok() && answer.error().code == Code::kGone;
       ++tries) {
    const Status asked = ask();
    if (!asked.ok() && asked.error().code != Code::kGone) {
      return asked;
    }
    answer = hear(socket_.get());
  }
  return answer.ok() ? Status() : Status(answer.error());
}

// What the answer says matters to nobody: that process tries until it serves the sandbox.
int Attendance::renew() {
  Status asked = ask();
  for (int tries = 1; tries < kTries && !asked.ok() && asked.error().code == Code::kGone; ++tries) {
    asked = ask();
  }
  if (!asked.ok()) {
    return -1;
  }
  (void)finish();
  return socket_.get();
}

Status change(const storage::Home& home, const std::string& id, policy::NetworkPolicy policy) {
  CARREL_ASSIGN(Registration registration, read_registration(home, id));
  registration.policy = std::move(policy);
  CARREL_TRY(write_registration(home, registration));
  return revive(home, id);
}

Result<UsageNow> usage(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(const nlohmann::json answer, ask(home, "usage", id));
  UsageNow result;
  result.bytes_out = answer.value("bytes_out", std::uint64_t{0});
  result.bytes_in = answer.value("bytes_in", std::uint64_t{0});
  result.connections = answer.value("connections", std::uint64_t{0});
  result.live = answer.value("live", std::uint64_t{0});
  result.denied = answer.value("denied", std::uint64_t{0});
  return result;
}

}  // namespace carrel::egress
