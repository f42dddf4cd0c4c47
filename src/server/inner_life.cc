#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "manager/commands.h"
#include "manager/holding.h"
#include "server/handlers.h"
#include "server/service.h"

// What holds a sandbox up.
namespace carrel::server {
namespace {

Json holder_json(const manager::Holder& holder) {
  return {{"by", std::string(manager::name_of(holder.by))},
          {"what", replace_invalid_utf8(holder.what)},
          {"command", holder.command == 0 ? Json(nullptr) : Json(std::to_string(holder.command))},
          {"until_ms", holder.until_ms == 0 ? Json(nullptr) : Json(holder.until_ms)}};
}

}  // namespace

void add_inner_life(Request& request, const storage::SandboxRow& row, Json& object) {
  manager::Manager& manager = *request.service.manager;
  std::vector<manager::KnownCommand> commands;
  if (row.state == "running") {
    if (auto look = manager.look_into(request.caller, row.id); look.ok()) {
      if (auto listed = manager::list_commands(look->stream()); listed.ok()) {
        commands = std::move(listed.value());
        look->keep_stream();
      }
    }
  }
  Json held = Json::array();
  for (const manager::Holder& holder : manager::holders_of(manager.home(), row, commands)) {
    held.push_back(holder_json(holder));
  }
  object["held_by"] = std::move(held);
}

}  // namespace carrel::server
