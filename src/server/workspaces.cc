#include <utility>

#include "manager/owned.h"
#include "server/handlers.h"
#include "server/service.h"

// What a client has on the disk beside his sandboxes.
namespace carrel::server {
namespace {

Json snapshot_json(const storage::SnapshotRow& row) {
  return {{"id", row.id},
          {"name", row.name},
          {"created_ms", row.created_ms},
          {"changed", row.changed},
          {"copied_bytes", row.bytes},
          {"asked_for", row.asked == storage::SnapshotRow::Asked::kYes}};
}

Json workspace_json(const manager::OwnedWorkspace& one) {
  Json snapshots = Json::array();
  for (const storage::SnapshotRow& row : one.snapshots) {
    snapshots.push_back(snapshot_json(row));
  }
  const storage::WorkspaceRow& row = one.row;
  return {{"name", row.name},
          {"owner", row.owner},
          {"goes_with", row.for_box.empty() ? Json(nullptr) : Json(row.for_box)},
          {"created_ms", row.created_ms},
          {"used_ms", row.used_ms},
          {"limit_bytes", row.disk_bytes},
          {"charged_bytes", one.charged_bytes},
          {"fork_of", row.base},
          {"snapshots", std::move(snapshots)}};
}

}  // namespace

Status list_workspaces(Request& request) {
  CARREL_ASSIGN(const manager::Owned owned, request.service.manager->owned(request.caller));
  Json list = Json::array();
  for (const manager::OwnedWorkspace& one : owned.workspaces) {
    list.push_back(workspace_json(one));
  }
  return reply(
      request, 200,
      {{"workspaces", std::move(list)},
       {"workspaces_bytes", owned.charges.workspaces},
       {"snapshots_bytes", owned.charges.layers},
       {"quota_bytes", owned.quota_bytes.has_value() ? Json(*owned.quota_bytes) : Json(nullptr)}});
}

Status delete_workspace(Request& request) {
  CARREL_TRY(request.service.manager->remove_workspace(request.caller, request.id()));
  return reply_nothing(request);
}

Status delete_snapshot(Request& request) {
  CARREL_TRY(request.service.manager->remove_snapshot(request.caller, request.id()));
  return reply_nothing(request);
}

}  // namespace carrel::server
