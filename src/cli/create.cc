#include <unistd.h>

#include <string>
#include <utility>

#include "backends/native/keeper.h"
#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "cli/context.h"
#include "cli/mounts.h"
#include "cli/notice.h"
#include "cli/output.h"
#include "cli/sandbox_spec.h"
#include "cli/services.h"
#include "cli/workspace_source.h"
#include "manager/making.h"
#include "manager/walls.h"
#include "manager/workspace_target.h"
#include "policy/size.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::cli {

int create_command(const Context& context) {
  auto spec = sandbox_spec(context.arguments, policy::Operation::kCreate);
  if (!spec.ok()) {
    return fail(context, spec.error());
  }
  auto trees = open_mounts(context, spec.value());
  if (!trees.ok()) {
    return fail(context, trees.error());
  }
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  if (Status possible = native::check_network(home.value(), spec.value()); !possible.ok()) {
    return fail(context, possible.error());
  }
  native::sweep_boxes(home.value());
  manager::Wish wish;
  wish.spec = std::move(spec.value());
  wish.trees = std::move(trees.value());
  wish.given = chosen_settings(context.arguments);
  wish.finish_restore = manager::finish_restore_apart;
  if (auto own = own_places(context.arguments); own.ok()) {
    wish.policy_file = own->policy_file;
  }
  CopiedSource source(home.value());
  if (Status copied = source.copy(context, wish.spec); !copied.ok()) {
    return fail(context, copied.error());
  }
  wish.name = std::string(context.arguments.value(OptionId::kName).value_or(""));
  if (auto lease = context.arguments.value(OptionId::kLease); lease.has_value()) {
    auto duration = policy::parse_duration({"--lease", *lease});
    if (!duration.ok()) {
      return fail(context, duration.error());
    }
    wish.lease_ms = static_cast<std::uint64_t>(duration.value().count());
  }
  const std::string name = wish.name;
  auto id = manager::make_sandbox(home.value(), std::move(wish));
  if (!id.ok()) {
    return fail(context, id.error());
  }
  if (Status kept = source.goes_with(id.value()); !kept.ok()) {
    return fail(context, kept.error());
  }
  const Status ready = wait_for_services(context, home.value(), id.value());
  const bool waited = context.arguments.has(OptionId::kWaitReady);
  const char* said = !waited ? "" : ready.ok() ? ",\"ready\":true" : ",\"ready\":false";
  print(context.json()
            ? "{\"id\":" + json_string(id.value()) + ",\"name\":" + json_string(name) + said + "}\n"
            : id.value() + "\n");
  if (!ready.ok()) {
    return context.json() ? status_of(*context.arguments.command, ready.error())
                          : fail(context, ready.error());
  }
  if (!context.json() && ::isatty(STDERR_FILENO) != 0) {
    if (auto state = storage::State::open(home.value()); state.ok()) {
      if (auto row = state.value().find(id.value()); row.ok() && row.value().has_value()) {
        say_what_is_weaker(context, enforcement_from_json(row.value()->enforcement));
      }
    }
  }
  return 0;
}

int keeper_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  return native::run_keeper(home.value(), 3, manager::find_walls);
}

}  // namespace carrel::cli
