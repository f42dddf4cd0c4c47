#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "backends/native/remains.h"
#include "base/utf8.h"
#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "manager/box_command.h"
#include "manager/commands.h"
#include "manager/holding.h"
#include "manager/inner_life.h"
#include "manager/life.h"
#include "manager/services.h"
#include "policy/settings.h"
#include "policy/spec_json.h"
#include "storage/box.h"
#include "storage/home.h"
#include "storage/state.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

Json settings_json(const std::string& spec_text) {
  Json settings = Json::object();
  auto spec = policy::spec_from_json(spec_text);
  if (spec.ok()) {
    for (const policy::SettingValue& value : policy::dump_settings(spec.value())) {
      settings[std::string(value.name)] = replace_invalid_utf8(value.value);
    }
  }
  return settings;
}

// Of a backend that this version does not know nothing is said about its strength.
policy::Isolation isolation_in(const Json& settings) {
  const auto backend = policy::backend_named(settings.value("backend", ""));
  return backend.has_value()
             ? policy::isolation_of(*backend, settings.value("runtime", ""))
             : policy::Isolation{{}, "unknown", "this version does not know its backend"};
}

// What its guest knows besides; nothing of it where the guest cannot be asked.
struct InnerLife {
  std::vector<manager::Holder> holders;
  std::vector<manager::ServiceLife> services = {};
};

InnerLife look_inside(const storage::Home& home, const storage::SandboxRow& row) {
  std::vector<manager::KnownCommand> commands;
  std::vector<manager::ServiceLife> services;
  if (auto record = storage::read_record(home, row.id); row.state == "running" && record.ok()) {
    if (auto stream = manager::connect(home, record.value()); stream.ok()) {
      if (auto listed = manager::list_commands(stream.value()); listed.ok()) {
        commands = std::move(listed.value());
      }
      if (auto lives = manager::list_services(stream.value()); lives.ok()) {
        services = std::move(lives.value());
      }
    }
  }
  return {manager::holders_of(home, row, commands), std::move(services)};
}

// "web ready, command 4, 2 restarts, the last exit was 1"
std::string service_text(const manager::ServiceLife& service) {
  std::string text = service.name + " " + std::string(manager::name_of(service.state));
  if (service.command != 0) {
    text += ", command " + std::to_string(service.command);
  }
  if (service.restarts != 0) {
    text += ", " + std::to_string(service.restarts) + " restarts";
  }
  if (service.last_exit.has_value()) {
    text += ", the last exit was " + std::to_string(*service.last_exit);
  }
  return text;
}

// "command 3: sleep 100", "lease: it ends with its lease, in 2h"
std::string holder_text(const manager::Holder& holder) {
  std::string text(manager::name_of(holder.by));
  if (holder.command != 0) {
    text += " " + std::to_string(holder.command);
  }
  text += ": " + holder.what;
  if (holder.until_ms != 0) {
    const std::int64_t left = std::max<std::int64_t>(0, holder.until_ms - storage::wall_clock_ms());
    text += ", in " + age(left);
  }
  return text;
}

void show_enforcement(const Json& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const Json& row : rows) {
    lines.push_back({row.value("name", ""), row.value("by", ""), row.value("note", "")});
  }
  print(table(lines));
}

}  // namespace

int info_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  native::sweep_boxes(home.value());
  auto found = manager::find_row(home.value(), std::string(context.arguments.operands.front()));
  if (!found.ok()) {
    return fail(context, found.error());
  }
  const storage::SandboxRow& row = found.value();
  const manager::Life life = manager::life_of(home.value(), row);
  Json enforcement = Json::parse(row.enforcement, nullptr, false);
  if (!enforcement.is_array()) {
    enforcement = Json::array();
  }
  const Json settings = settings_json(row.spec);
  const std::string backend = settings.value("backend", "unknown");
  const policy::Isolation isolation = isolation_in(settings);
  if (context.json()) {
    Json object{{"id", row.id},
                {"name", row.name},
                {"state", life.state},
                {"desired_state", life.desired},
                {"backend", backend},
                {"isolation", isolation.kind},
                {"created_ms", row.created_ms},
                {"ended_ms", row.ended_ms},
                {"reason", life.reason}};
    const InnerLife inner = look_inside(home.value(), row);
    object["held_by"] = manager::to_json(inner.holders);
    object["services"] = manager::to_json(inner.services);
    object["settings"] = settings;
    object["enforcement"] = enforcement;
    print(object.dump() + "\n");
    return 0;
  }
  if (context.arguments.has(OptionId::kEnforcement)) {
    show_enforcement(enforcement);
    return 0;
  }
  std::vector<std::vector<std::string>> lines = {
      {"id", row.id},
      {"name", row.name.empty() ? "-" : row.name},
      {"state", life.state},
      {"backend", backend + " (" + std::string(isolation.note) + ")"},
      {"age", age(storage::wall_clock_ms() - row.created_ms)},
  };
  if (!life.reason.empty()) {
    lines.push_back({life.state, life.reason});
  }
  const InnerLife inner = look_inside(home.value(), row);
  for (const manager::Holder& holder : inner.holders) {
    lines.push_back({"held by", holder_text(holder)});
  }
  for (const manager::ServiceLife& service : inner.services) {
    lines.push_back({"service", service_text(service)});
  }
  for (const auto& [name, value] : settings.items()) {
    lines.push_back({name, value.get<std::string>()});
  }
  // What is hidden in a mount nobody expects.
  for (const Json& mount : enforcement) {
    const std::string name = mount.value("name", "");
    if (name.starts_with("mount ") && !mount.value("note", "").empty()) {
      lines.push_back({name, mount.value("note", "")});
    }
  }
  print(table(lines));
  return 0;
}

}  // namespace carrel::cli
