#include "backends/microvm/saver.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "base/unix_socket.h"

namespace carrel::microvm {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr std::size_t kLongestAnswer = 64U << 10;

Error failed(const std::string& what) {
  return Error{Code::kUnavailable, 0, "the virtual machine cannot be saved: " + what, {}};
}

class Monitor {
 public:
  Monitor(int socket, Clock::time_point late) : socket_(socket), late_(late) {}

  // Everything but answers is of no interest.
  Result<Json> ask(const std::string& command, const Json& arguments = Json::object(),
                   std::span<const int> descriptors = {}) {
    const std::string text = Json{{"execute", command}, {"arguments", arguments}}.dump() + "\n";
    if (send_with(socket_, text, descriptors, MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
      return failed("its monitor does not listen");
    }
    for (;;) {
      CARREL_ASSIGN(const Json line, next_line());
      if (line.contains("return")) {
        return line["return"];
      }
      if (line.contains("error")) {
        return failed(command + ": " + line["error"].dump().substr(0, 200));
      }
    }
  }

 private:
  Result<Json> next_line() {
    for (;;) {
      if (const std::size_t end = heard_.find('\n'); end != std::string::npos) {
        Json line = Json::parse(heard_.substr(0, end), nullptr, false);
        heard_.erase(0, end + 1);
        if (!line.is_object()) {
          return failed("its monitor says something that is no answer");
        }
        return line;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(late_ - Clock::now()).count();
      pollfd look{socket_, POLLIN, 0};
      if (left <= 0 || heard_.size() > kLongestAnswer) {
        return failed("its monitor does not answer");
      }
      const int ready = ::poll(&look, 1, static_cast<int>(std::min<long>(left, 60'000)));
      std::array<char, 4096> piece{};
      const ssize_t n = ready == 1 ? ::recv(socket_, piece.data(), piece.size(), MSG_DONTWAIT) : -1;
      if (n > 0) {
        heard_.append(piece.data(), static_cast<std::size_t>(n));
      } else if (ready == 1 && (n == 0 || (errno != EAGAIN && errno != EINTR))) {
        return failed("it ended");
      }
    }
  }

  int socket_;
  Clock::time_point late_;
  std::string heard_;
};

}  // namespace

Status save_machine(const SaveTerms& terms) {
  constexpr char kName[] = "snapshot";
  constexpr std::int64_t kAtOnce = 1LL << 40;
  constexpr int kStepMs = 10;
  Monitor monitor(terms.monitor, terms.sleeper.late);
  CARREL_TRY(monitor.ask("qmp_capabilities"));
  if (const Woken woken = await_sleeper(terms.sleeper); woken != Woken::kYes) {
    return failed(woken == Woken::kLate ? "it did not begin in time" : "it ended before it began");
  }
  CARREL_TRY(monitor.ask("migrate-set-parameters", {{"max-bandwidth", kAtOnce}}));
  const std::array<int, 1> file = {terms.file};
  CARREL_TRY(monitor.ask("getfd", {{"fdname", kName}}, file));
  // It is not stopped before: a machine that goes on from what is saved is in the same state.
  CARREL_TRY(monitor.ask("migrate", {{"uri", std::string("fd:") + kName}}));
  for (;;) {
    CARREL_ASSIGN(const Json answer, monitor.ask("query-migrate"));
    const std::string status =
        answer.is_object() && answer.contains("status") && answer["status"].is_string()
            ? answer["status"].get<std::string>()
            : std::string();
    if (status == "completed") {
      return {};
    }
    if (status == "failed" || status == "cancelled") {
      return failed("QEMU gave up");
    }
    (void)::poll(nullptr, 0, kStepMs);
  }
}

}  // namespace carrel::microvm
