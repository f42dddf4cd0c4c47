#include <nlohmann/json.hpp>

#include "backends/native/remains.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "manager/life.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::cli {

int list_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  auto state = storage::State::open(home.value());
  if (!state.ok()) {
    return fail(context, state.error());
  }
  auto rows =
      state.value().list(context.arguments.has(OptionId::kAll) ? storage::State::Which::kAll
                                                               : storage::State::Which::kLive);
  if (!rows.ok()) {
    return fail(context, rows.error());
  }
  for (storage::SandboxRow& row : rows.value()) {
    manager::Life life = manager::life_of(home.value(), row);
    row.state = std::move(life.state);
    row.reason = std::move(life.reason);
  }
  if (context.json()) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const storage::SandboxRow& row : rows.value()) {
      list.push_back({{"id", row.id},
                      {"name", row.name},
                      {"state", row.state},
                      {"created_ms", row.created_ms},
                      {"ended_ms", row.ended_ms},
                      {"reason", row.reason}});
    }
    print(nlohmann::ordered_json{{"sandboxes", list}}.dump() + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> lines = {{"ID", "NAME", "STATE", "AGE", "REASON"}};
  const std::int64_t now = storage::wall_clock_ms();
  for (const storage::SandboxRow& row : rows.value()) {
    lines.push_back({row.id, row.name.empty() ? "-" : row.name, row.state,
                     age(now - row.created_ms), row.reason});
  }
  print(table(lines));
  return 0;
}

}  // namespace carrel::cli
