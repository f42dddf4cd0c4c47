#include <algorithm>
#include <string>
#include <utility>

#include "backends/native/pause.h"
#include "backends/native/remains.h"
#include "manager/box_command.h"
#include "manager/commands.h"
#include "manager/manager.h"
#include "manager/stopping.h"
#include "policy/size.h"
#include "policy/spec_json.h"

// Sandboxes that nobody uses. A use is a request or a command line that is in the sandbox, from its
// beginning to its end, and a command that runs there, whoever started it.
namespace carrel::manager {

namespace {

constexpr int kGraceMs = 2000;

// Whether a command runs in it, be it one that nobody waits for.
Result<bool> is_busy(const storage::Home& home, const storage::BoxRecord& record) {
  CARREL_ASSIGN(sandbox::GuestStream stream, connect(home, record));
  CARREL_ASSIGN(const std::vector<KnownCommand> commands, list_commands(stream));
  return std::any_of(commands.begin(), commands.end(),
                     [](const KnownCommand& command) { return command.holds(); });
}

}  // namespace

void Manager::rest_idle() {
  std::vector<storage::SandboxRow> rows;
  {
    const std::lock_guard lock(database_mutex_);
    auto ids = ledger_.live_ids();
    if (!ids.ok()) {
      return;
    }
    std::erase_if(idle_rules_, [&](const auto& one) {
      return std::find(ids->begin(), ids->end(), one.first) == ids->end();
    });
    for (const std::string& id : ids.value()) {
      if (idle_rules_.contains(id)) {
        continue;
      }
      if (auto row = state_.find(id); row.ok() && row.value().has_value()) {
        rows.push_back(std::move(*row.value()));
      }
    }
  }
  for (const storage::SandboxRow& row : rows) {
    if (auto spec = policy::spec_from_json(row.spec); spec.ok()) {
      idle_rules_[row.id] = {spec->on_idle, spec->idle_timeout.count(), row.created_ms};
    }
  }
  for (const auto& [id, rule] : idle_rules_) {
    const std::int64_t since = std::max(rule.created_ms, storage::last_use(home_, id));
    if (rule.what != policy::OnIdle::kNothing &&
        storage::wall_clock_ms() - since >= rule.after_ms) {
      rest(id, rule);
    }
  }
}

void Manager::rest(const std::string& id, const IdleRule& rule) {
  auto record = storage::read_record(home_, id);
  if (!record.ok() || storage::noted_pause(home_, id).has_value()) {
    return;
  }
  // From here on nobody comes in, until it is decided.
  auto unused = storage::keep_unused(home_, id);
  if (!unused.ok()) {
    return;
  }
  auto busy = is_busy(home_, record.value());
  if (!busy.ok() || busy.value()) {
    storage::touch_use(home_, id);
    return;
  }
  const std::string reason =
      "nobody used it for " + policy::format_duration(std::chrono::milliseconds(rule.after_ms));
  Status rested;
  switch (rule.what) {
    case policy::OnIdle::kNothing:
      return;
    case policy::OnIdle::kPause:
      rested = native::pause_sandbox(home_, record.value(), {reason, storage::Pause::Until::kUsed});
      break;
    case policy::OnIdle::kStop:
      (void)kept_stream(id);
      rested = stop_sandbox(home_, record.value(), kGraceMs, reason, storage::Wake::kWhenUsed);
      break;
    case policy::OnIdle::kRemove:
      (void)kept_stream(id);
      rested = native::remove_sandbox(home_, record.value(), kGraceMs, reason);
      break;
  }
  if (!rested.ok()) {
    storage::touch_use(home_, id);  // not again at once
  }
}

}  // namespace carrel::manager
