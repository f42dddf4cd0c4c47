#include "manager/holding.h"

#include <algorithm>

#include "policy/size.h"
#include "policy/spec_json.h"
#include "storage/box_use.h"

namespace carrel::manager {

namespace {

// "stop after 90s without use"
std::string idle_rule(const policy::Spec& spec) {
  std::string time = policy::format_duration(spec.idle_timeout);
  time += time.ends_with('s') ? "" : "s";
  const char* what = spec.on_idle == policy::OnIdle::kPause  ? "pause"
                     : spec.on_idle == policy::OnIdle::kStop ? "stop"
                                                             : "remove";
  return std::string(what) + " after " + time + " without use";
}

}  // namespace

std::string_view name_of(Holder::By by) {
  switch (by) {
    case Holder::By::kCommand:
      return "command";
    case Holder::By::kConnection:
      return "connection";
    case Holder::By::kLease:
      return "lease";
    case Holder::By::kIdleTime:
      return "idle_time";
    case Holder::By::kKeep:
      break;
  }
  return "keep";
}

std::vector<Holder> holders_of(const storage::Home& home, const storage::SandboxRow& row,
                               const std::vector<KnownCommand>& commands) {
  std::vector<Holder> holders;
  if (row.state != "running") {
    return holders;
  }
  for (const KnownCommand& command : commands) {
    if (command.holds()) {
      // The guest ends each word with a space.
      const std::string title = command.title.substr(0, command.title.find_last_not_of(' ') + 1);
      holders.push_back({.by = Holder::By::kCommand, .what = title, .command = command.id});
    }
  }
  if (storage::is_used(home, row.id)) {
    holders.push_back({.by = Holder::By::kConnection, .what = "somebody is connected"});
  }
  const std::int64_t lease = storage::noted_lease(home, row.id);
  if (lease != 0) {
    holders.push_back(
        {.by = Holder::By::kLease, .what = "it ends with its lease", .until_ms = lease});
  }
  auto spec = policy::spec_from_json(row.spec);
  if (spec.ok() && spec->on_idle != policy::OnIdle::kNothing) {
    const std::int64_t since = std::max(row.created_ms, storage::last_use(home, row.id));
    holders.push_back({.by = Holder::By::kIdleTime,
                       .what = idle_rule(*spec),
                       .until_ms = since + spec->idle_timeout.count()});
  } else if (lease == 0) {
    holders.push_back({.by = Holder::By::kKeep, .what = "it stays until it is removed"});
  }
  return holders;
}

}  // namespace carrel::manager
