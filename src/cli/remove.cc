#include <string>
#include <vector>

#include "backends/native/remains.h"
#include "cli/context.h"
#include "cli/output.h"
#include "manager/owned.h"
#include "manager/stopping.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {
constexpr int kGraceMs = 2000;
}

int remove_command(const Context& context) {
  const Arguments& arguments = context.arguments;
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  std::vector<std::string> names(arguments.operands.begin(), arguments.operands.end());
  if (arguments.has(OptionId::kAll)) {
    names = storage::box_ids(home.value());
    for (const std::string& id : manager::stopped_ids(home.value())) {
      names.push_back(id);
    }
  } else if (names.empty()) {
    return fail(context, Error{Code::kInvalid, 0, "rm needs the id of a sandbox, or --all", {}});
  }
  int status = 0;
  std::string removed;
  for (const std::string& name : names) {
    auto removed_id =
        manager::remove_named(home.value(), name, arguments.has(OptionId::kForce) ? 0 : kGraceMs);
    const Status done = removed_id.ok() ? Status() : Status{removed_id.error()};
    // Removing what is not there is what was wanted, if --force or --all says so.
    const bool missing = !done.ok() && done.error().code == Code::kNotFound;
    if (!done.ok() &&
        !(missing && (arguments.has(OptionId::kForce) || arguments.has(OptionId::kAll)))) {
      status = fail(context, done.error());
      continue;
    }
    if (removed_id.ok()) {
      removed += (removed.empty() ? "" : ",") + json_string(removed_id.value());
      if (!context.json()) {
        print(removed_id.value() + "\n");
      }
    }
  }
  manager::remove_left_over(home.value());
  if (context.json() && status == 0) {
    print("{\"removed\":[" + removed + "]}\n");
  }
  return status;
}

}  // namespace carrel::cli
