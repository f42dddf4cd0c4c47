#include "manager/usage.h"

#include "server/handlers.h"
#include "server/service.h"

namespace carrel::server {

Status get_usage(Request& request) {
  manager::Manager& manager = *request.service.manager;
  CARREL_ASSIGN(const storage::BoxRecord record, manager.record_of(request.caller, request.id()));
  auto usage = manager::usage_of(manager.home(), record);
  if (!usage.ok()) {
    return manager.explain_end(request.id(), std::move(usage.error()));
  }
  const auto number = [](const std::optional<std::uint64_t>& value) {
    return value.has_value() ? Json(*value) : Json(nullptr);
  };
  std::optional<std::uint64_t> disk;
  if (auto look = manager.look_into(request.caller, request.id()); look.ok()) {
    if (const auto use = manager::disk_use_of(look->stream()); use.ok()) {
      disk = use.value().used_bytes;
      look->keep_stream();
    }
  }
  return reply(request, 200,
               {{"memory_bytes", number(usage->memory_bytes)},
                {"memory_peak_bytes", number(usage->memory_peak_bytes)},
                {"pids", number(usage->pids)},
                {"cpu_usec", number(usage->cpu_usec)},
                {"cpu_throttled_periods", number(usage->cpu_throttled_periods)},
                {"disk_bytes", number(disk)}});
}

}  // namespace carrel::server
