#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/output.h"
#include "cli/table.h"
#include "manager/box_command.h"
#include "manager/usage.h"
#include "storage/box.h"
#include "storage/home.h"

namespace carrel::cli {

namespace {

// What its guest says; nothing when it says nothing.
std::optional<std::uint64_t> disk_of(const storage::Home& home, const storage::BoxRecord& record) {
  auto stream = manager::connect(home, record);
  if (!stream.ok()) {
    return std::nullopt;
  }
  const auto use = manager::disk_use_of(stream.value());
  return use.ok() ? std::optional(use.value().used_bytes) : std::nullopt;
}

}  // namespace

int stats_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  auto record = storage::find_box(home.value(), std::string(context.arguments.operands.front()));
  if (!record.ok()) {
    return fail(context, record.error());
  }
  auto usage = manager::usage_of(home.value(), record.value());
  if (!usage.ok()) {
    if (usage.error().code == Code::kGone) {
      usage.error().message = "sandbox " + record.value().id + " has ended";
      usage.error().hint = "'carrel info' says why";
    }
    return fail(context, usage.error());
  }
  const kernel::CgroupUsage& now = usage.value();
  const std::optional<std::uint64_t> disk = disk_of(home.value(), record.value());
  if (context.json()) {
    nlohmann::ordered_json object;
    auto add = [&](const char* name, const std::optional<std::uint64_t>& value) {
      object[name] = value.has_value() ? nlohmann::ordered_json(*value) : nullptr;
    };
    object["id"] = record.value().id;
    add("memory_bytes", now.memory_bytes);
    add("memory_peak_bytes", now.memory_peak_bytes);
    add("pids", now.pids);
    add("cpu_usec", now.cpu_usec);
    add("cpu_throttled_periods", now.cpu_throttled_periods);
    add("disk_bytes", disk);
    print(object.dump() + "\n");
    return 0;
  }
  auto size = [](const std::optional<std::uint64_t>& value) {
    return value.has_value() ? std::to_string(*value >> 10) + " KiB" : std::string("-");
  };
  auto number = [](const std::optional<std::uint64_t>& value, std::uint64_t divisor,
                   const char* unit) {
    return value.has_value() ? std::to_string(*value / divisor) + unit : std::string("-");
  };
  print(table({{"memory", size(now.memory_bytes)},
               {"memory peak", size(now.memory_peak_bytes)},
               {"processes", number(now.pids, 1, "")},
               {"cpu time", number(now.cpu_usec, 1000, " ms")},
               {"throttled", number(now.cpu_throttled_periods, 1, " periods")},
               {"disk", size(disk)}}));
  return 0;
}

}  // namespace carrel::cli
