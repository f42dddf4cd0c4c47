#include "manager/owned.h"

#include <utility>

#include "manager/manager.h"
#include "manager/self.h"

namespace carrel::manager {
namespace {

// Those of others are not there, in the words of WorkspaceStore.
Error no_workspace(const std::string& name) {
  return Error{Code::kNotFound, 0, "Workspace " + name + " not found", {}};
}
Error no_snapshot(const std::string& id) {
  return Error{Code::kNotFound, 0, "Snapshot " + id + " not found", {}};
}

}  // namespace

// Each in a run of its own: one that is in use, or held, keeps no other.
std::vector<std::string> remove_workspaces(const std::vector<std::string>& names) {
  std::vector<std::string> gone;
  for (const std::string& name : names) {
    if (ask_self({"workspace", "rm", "--json", name}).ok()) {
      gone.push_back(name);
    }
  }
  return gone;
}

void remove_left_over(const storage::Home& home) {
  auto records = storage::WorkspaceRecords::open(home);
  if (!records.ok()) {
    return;
  }
  if (const auto names = records->left_over(); names.ok()) {
    remove_workspaces(names.value());
  }
}

void Manager::drop_left_over() {
  std::unique_lock lock(database_mutex_);
  const auto names = workspaces_.left_over();
  lock.unlock();
  if (names.ok()) {
    remove_workspaces(names.value());
  }
}

Result<Owned> Manager::owned(const Caller& caller) {
  const std::lock_guard lock(database_mutex_);
  Owned owned;
  CARREL_ASSIGN(std::vector<storage::WorkspaceRow> rows,
                caller.is_operator() ? workspaces_.list() : workspaces_.owned_by(caller.owner));
  for (storage::WorkspaceRow& row : rows) {
    OwnedWorkspace one;
    CARREL_ASSIGN(one.snapshots, workspaces_.snapshots(row.name));
    one.charged_bytes = storage::charge_for(row);
    owned.charges.workspaces += one.charged_bytes;
    one.row = std::move(row);
    owned.workspaces.push_back(std::move(one));
  }
  CARREL_ASSIGN(owned.charges.layers, caller.is_operator() ? workspaces_.all_layer_bytes()
                                                           : workspaces_.layer_bytes(caller.owner));
  owned.quota_bytes = caller.quota.disk_bytes;
  return owned;
}

Status Manager::remove_workspace(const Caller& caller, const std::string& name) {
  {
    const std::lock_guard lock(database_mutex_);
    CARREL_ASSIGN(const auto row, workspaces_.find(name));
    if (!row.has_value() || (!caller.is_operator() && row->owner != caller.owner)) {
      return no_workspace(name);
    }
  }
  CARREL_TRY(ask_self({"workspace", "rm", "--json", name}));
  return {};
}

Status Manager::remove_snapshot(const Caller& caller, const std::string& id) {
  {
    const std::lock_guard lock(database_mutex_);
    CARREL_ASSIGN(const auto row, workspaces_.snapshot(id));
    if (!row.has_value()) {
      return no_snapshot(id);
    }
    CARREL_ASSIGN(const auto workspace, workspaces_.find(row->workspace));
    const std::string owner = workspace.has_value() ? workspace->owner : std::string();
    if (!caller.is_operator() && owner != caller.owner) {
      return no_snapshot(id);
    }
  }
  CARREL_TRY(ask_self({"workspace", "forget", "--json", id}));
  return {};
}

}  // namespace carrel::manager
