#include "manager/inner_life.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "manager/commands.h"
#include "manager/holding.h"
#include "manager/services.h"
#include "server/handlers.h"
#include "server/service.h"

// What holds a sandbox up, and how its services are.
namespace carrel::server {
namespace {

constexpr std::uint64_t kLongestWaitMs = 600'000;

}  // namespace

Json inner_life(Request& request, const storage::SandboxRow& row) {
  manager::Manager& manager = *request.service.manager;
  std::vector<manager::KnownCommand> commands;
  std::vector<manager::ServiceLife> services;
  if (row.state == "running") {
    if (auto look = manager.look_into(request.caller, row.id); look.ok()) {
      auto listed = manager::list_commands(look->stream());
      auto lives = listed.ok() ? manager::list_services(look->stream()) : listed.error();
      if (lives.ok()) {
        commands = std::move(listed.value());
        services = std::move(lives.value());
        look->keep_stream();
      }
    }
  }
  return {{"held_by", manager::to_json(manager::holders_of(manager.home(), row, commands))},
          {"services", manager::to_json(services)}};
}

Status get_services(Request& request) {
  CARREL_ASSIGN(const std::uint64_t wait_ms,
                number_in(request.query, "wait_ms", 0, kLongestWaitMs));
  manager::Manager& manager = *request.service.manager;
  CARREL_ASSIGN(const UniqueFd watch, watch_client(request.socket));
  CARREL_ASSIGN(auto look, manager.look_into(request.caller, request.id()));
  auto services = manager::await_ready(look.stream(), std::chrono::milliseconds(wait_ms), [&] {
    return request.service.stopping || client_left(watch);
  });
  if (!services.ok()) {
    return manager.explain_end(request.id(), std::move(services.error()));
  }
  look.keep_stream();
  return reply(request, 200,
               {{"ready", manager::all_ready(services.value())},
                {"services", manager::to_json(services.value())}});
}

}  // namespace carrel::server
