#include "manager/life.h"

#include <functional>
#include <string>

#include "backends/native/pause.h"
#include "backends/native/remains.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/services.h"
#include "manager/stopping.h"
#include "manager/workspace_target.h"
#include "storage/box.h"
#include "storage/home.h"

// Sandboxes put to rest, and woken.
namespace carrel::cli {

namespace {

using Change = std::function<Status(storage::Home& home, const storage::BoxRecord& record)>;

constexpr int kGraceMs = 2000;

void show_state(const Context& context, const std::string& id, const std::string& state) {
  if (context.json()) {
    print("{\"id\":" + json_string(id) + ",\"state\":" + json_string(state) + "}\n");
  }
}

int change_life(const Context& context, const std::string& state, const Change& change) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  auto record = storage::find_box(home.value(), std::string(context.arguments.operands.front()));
  if (!record.ok()) {
    return fail(context, record.error());
  }
  if (Status changed = change(home.value(), record.value()); !changed.ok()) {
    return fail(context, changed.error());
  }
  show_state(context, record.value().id, state);
  return 0;
}

}  // namespace

int pause_command(const Context& context) {
  return change_life(context, "paused", [](const auto& home, const auto& record) {
    return native::pause_sandbox(home, record, {"somebody paused it"});
  });
}

int resume_command(const Context& context) {
  return change_life(context, "running", [](const auto& home, const auto& record) {
    return native::resume_sandbox(home, record);
  });
}

int stop_command(const Context& context) {
  return change_life(context, "stopped", [](storage::Home& home, const auto& record) {
    return manager::stop_sandbox(home, record, kGraceMs, "somebody stopped it",
                                 storage::Wake::kWhenTold);
  });
}

int start_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  auto row = manager::find_row(home.value(), std::string(context.arguments.operands.front()));
  if (!row.ok()) {
    return fail(context, row.error());
  }
  if (Status started =
          manager::start_sandbox(home.value(), row.value(), manager::finish_restore_apart);
      !started.ok()) {
    return fail(context, started.error());
  }
  if (Status ready = wait_for_services(context, home.value(), row.value().id); !ready.ok()) {
    return fail(context, ready.error());
  }
  show_state(context, row.value().id, "running");
  return 0;
}

}  // namespace carrel::cli
