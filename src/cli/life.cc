#include <functional>
#include <string>

#include "backends/native/pause.h"
#include "cli/context.h"
#include "cli/output.h"
#include "storage/box.h"
#include "storage/home.h"

// Sandboxes put to rest, and woken.
namespace carrel::cli {

namespace {

using Change = std::function<Status(const storage::Home& home, const storage::BoxRecord& record)>;

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
  if (context.json()) {
    print("{\"id\":" + json_string(record.value().id) + ",\"state\":" + json_string(state) + "}\n");
  }
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

}  // namespace carrel::cli
