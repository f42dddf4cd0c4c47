#include "manager/stopping.h"

#include <poll.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "backends/native/mounts.h"
#include "backends/native/remains.h"
#include "manager/life.h"
#include "policy/spec_json.h"
#include "storage/events.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::manager {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kOthersTries = 600;  // for another who starts it
constexpr int kOthersStepMs = 50;

Result<std::optional<storage::SandboxRow>> row_of(const storage::Home& home,
                                                  const std::string& id) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  return state.find(id);
}

}  // namespace

Result<Wish> wish_from_json(const std::string& text) {
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("spec")) {
    return Error{Code::kConflict, 0, "how a sandbox was asked for is known no more", {}};
  }
  Wish wish;
  CARREL_ASSIGN(wish.spec, policy::spec_from_json(object["spec"].dump()));
  wish.name = object.value("name", "");
  wish.lease_ms = object.value("lease_ms", std::uint64_t{0});
  wish.policy_file = object.value("policy_file", "");
  wish.given.workdir = object.value("workdir_given", false) ? Choice::kGiven : Choice::kDefault;
  wish.given.user = object.value("user_given", false) ? Choice::kGiven : Choice::kDefault;
  return wish;
}

std::string wish_to_json(const Wish& wish) {
  Json object;
  object["name"] = wish.name;
  object["lease_ms"] = wish.lease_ms;
  object["policy_file"] = wish.policy_file;
  object["workdir_given"] = wish.given.workdir == Choice::kGiven;
  object["user_given"] = wish.given.user == Choice::kGiven;
  object["spec"] = Json::parse(policy::spec_to_json(wish.spec, policy::Values::kIncluded));
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Error is_stopped(const storage::SandboxRow& row) {
  return Error{Code::kConflict, 0, "sandbox " + row.id + " is stopped: " + row.reason,
               "'carrel start' starts it again"};
}

Status stop_sandbox(storage::Home& home, const storage::BoxRecord& record, int grace_ms,
                    const std::string& reason, storage::Wake wake) {
  CARREL_TRY(storage::read_wish(home, record.id));
  return native::stop_sandbox(home, record, grace_ms, reason, wake);
}

Result<Wish> wish_of_stopped(const storage::Home& home, const storage::SandboxRow& row) {
  CARREL_ASSIGN(const std::string text, storage::read_wish(home, row.id));
  CARREL_ASSIGN(Wish wish, wish_from_json(text));
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  if (auto there = store.find(wish.spec.workspace); !there.ok()) {
    return Error{Code::kConflict, 0,
                 "the workspace '" + wish.spec.workspace + "' of sandbox " + row.id + " is gone",
                 "remove the sandbox"};
  }
  wish.stopped = row.id;
  if (!wish.spec.mounts.empty()) {
    storage::OwnPlaces own;
    own.state = home.path();
    own.policy_file = wish.policy_file;
    CARREL_ASSIGN(wish.trees, native::open_mounts(wish.spec, own));
  }
  return wish;
}

Status start_sandbox(storage::Home& home, const storage::SandboxRow& row,
                     const FinishRestore& finish) {
  for (int i = 0; i < kOthersTries; ++i) {
    CARREL_ASSIGN(const auto now, row_of(home, row.id));
    if (!now.has_value() || now->state == "ended") {
      return Error{Code::kGone, 0, "sandbox " + row.id + " has ended",
                   now.has_value() ? now->reason : std::string()};
    }
    if (now->state == "stopped") {
      CARREL_ASSIGN(Wish wish, wish_of_stopped(home, *now));
      wish.finish_restore = finish;
      auto started = make_sandbox(home, std::move(wish));
      if (started.ok()) {
        return {};
      }
      // Somebody else may have been first.
      CARREL_ASSIGN(const auto then, row_of(home, row.id));
      if (!then.has_value() || then->state == "stopped" || then->state == "ended") {
        return started.error();
      }
    } else if (storage::read_record(home, row.id).ok()) {
      return {};
    }
    ::poll(nullptr, 0, kOthersStepMs);
  }
  return Error{Code::kTimeout, 0, "sandbox " + row.id + " does not become ready", {}};
}

Result<storage::BoxRecord> find_awake(storage::Home& home, const std::string& named,
                                      const FinishRestore& finish) {
  auto record = storage::find_box(home, named);
  if (record.ok() || record.error().code != Code::kNotFound) {
    return record;
  }
  auto row = find_row(home, named);
  if (!row.ok() || row.value().state != "stopped") {
    return record;
  }
  if (row.value().wake == storage::Wake::kWhenTold) {
    return is_stopped(row.value());
  }
  CARREL_TRY(start_sandbox(home, row.value(), finish));
  return storage::read_record(home, row.value().id);
}

Status end_stopped(const storage::Home& home, const std::string& id) {
  CARREL_ASSIGN(storage::State state, storage::State::open(home));
  CARREL_TRY(state.set_ended(id, "it was removed"));
  storage::drop_wish(home, id);
  storage::add_event(home, storage::stop_event(id, "it was removed"));
  return {};
}

Result<std::string> remove_named(storage::Home& home, const std::string& named, int grace_ms) {
  auto record = storage::find_box(home, named);
  if (record.ok()) {
    CARREL_TRY(native::remove_sandbox(home, record.value(), grace_ms, "it was removed"));
    return record.value().id;
  }
  auto row = find_row(home, named);
  if (!row.ok() || row.value().state != "stopped") {
    return record.error();
  }
  CARREL_TRY(end_stopped(home, row.value().id));
  return row.value().id;
}

std::vector<std::string> stopped_ids(const storage::Home& home) {
  std::vector<std::string> ids;
  auto state = storage::State::open(home);
  if (!state.ok()) {
    return ids;
  }
  auto rows = state.value().list(storage::State::Which::kLive);
  if (!rows.ok()) {
    return ids;
  }
  for (const storage::SandboxRow& row : rows.value()) {
    if (row.state == "stopped") {
      ids.push_back(row.id);
    }
  }
  return ids;
}

}  // namespace carrel::manager
