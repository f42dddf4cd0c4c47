#include "manager/services.h"

#include <poll.h>

#include <algorithm>

namespace carrel::manager {

namespace {

using Clock = std::chrono::steady_clock;
using protocol::FrameType;
using protocol::ServiceState;

constexpr int kAnswerMs = 10'000;
constexpr int kStepMs = 20;

Error malformed() { return {Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}}; }

}  // namespace

std::string_view name_of(ServiceState state) {
  switch (state) {
    case ServiceState::kStarting:
      return "starting";
    case ServiceState::kReady:
      return "ready";
    case ServiceState::kWaiting:
      break;
  }
  return "waiting";
}

Result<std::vector<ServiceLife>> list_services(sandbox::GuestStream& stream) {
  CARREL_TRY(stream.send(0, FrameType::kServices));
  std::vector<ServiceLife> services;
  for (;;) {
    CARREL_ASSIGN(const sandbox::GuestFrame frame, stream.wait(kAnswerMs));
    if (frame.type == FrameType::kListEnd) {
      return services;
    }
    protocol::ServiceRow row;
    if (frame.type != FrameType::kServiceRow || services.size() == protocol::kMaxServices ||
        !protocol::parse_service_row(frame.payload, row)) {
      return malformed();
    }
    ServiceLife life;
    life.name = row.name;
    life.state = row.state;
    life.restarts = row.starts > 0 ? row.starts - 1 : 0;
    life.command = row.command;
    life.ready_ms = row.state == ServiceState::kReady ? row.ready_ms : 0;
    if (row.ended != 0) {
      life.last_exit = static_cast<int>(row.status);
    }
    services.push_back(std::move(life));
  }
}

bool all_ready(const std::vector<ServiceLife>& services) {
  return std::all_of(services.begin(), services.end(), [](const ServiceLife& service) {
    return service.state == ServiceState::kReady;
  });
}

Result<std::vector<ServiceLife>> await_ready(sandbox::GuestStream& stream,
                                             std::chrono::milliseconds patience,
                                             const std::function<bool()>& leave) {
  const Clock::time_point end = Clock::now() + patience;
  for (;;) {
    CARREL_ASSIGN(std::vector<ServiceLife> services, list_services(stream));
    if (all_ready(services) || Clock::now() >= end || (leave && leave())) {
      return services;
    }
    ::poll(nullptr, 0, kStepMs);
  }
}

}  // namespace carrel::manager
