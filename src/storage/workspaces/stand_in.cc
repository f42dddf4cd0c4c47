#include "storage/workspaces/stand_in.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"
#include "storage/state.h"

namespace carrel::storage {

namespace {

constexpr char kMark[] = "box";

// Enough of an id that nobody meets it twice.
std::string name_for(const std::string& box) { return "sandbox-" + box.substr(0, 13); }

// The id that the mark has; empty: there is none.
std::string read_mark(WorkspaceStore& store, const std::string& workspace) {
  auto place = store.open_place(workspace);
  auto id =
      place.ok() ? read_file_at(place->get(), kMark, 256) : Result<std::string>(place.error());
  return id.ok() ? id.value() : std::string();
}

}  // namespace

Result<WorkspaceRow> ensure_stand_in(WorkspaceStore& store, const std::string& box,
                                     const std::string& owner) {
  WorkspaceRow wanted;
  wanted.owner = owner;
  wanted.for_box = box;
  wanted.name = name_for(box);
  wanted.created_ms = wall_clock_ms();
  wanted.used_ms = wanted.created_ms;
  CARREL_ASSIGN(const WorkspaceRow row, store.ensure(wanted));
  if (const std::string mark = read_mark(store, row.name); mark == box) {
    return row;
  } else if (!mark.empty() || !row.head.empty()) {
    return Error{Code::kConflict, 0, "there is already a workspace '" + row.name + "'", {}};
  }
  CARREL_ASSIGN(const UniqueFd place, store.open_place(row.name));
  CARREL_TRY(replace_file_at(place.get(), kMark, box, 0600));
  return row;
}

std::optional<BoxRecord> stands_for(WorkspaceStore& store, const std::string& workspace) {
  const std::string id = read_mark(store, workspace);
  if (id.empty()) {
    return std::nullopt;
  }
  auto record = read_record(store.home(), id);
  return record.ok() && is_alive(record.value()) ? std::optional(std::move(record.value()))
                                                 : std::nullopt;
}

Status settle_stand_in(WorkspaceStore& store, const WorkspaceRow& workspace) {
  if (read_mark(store, workspace.name).empty()) {
    return {};
  }
  // CRITICAL: that the tree is still to be made is stored before the mark goes: an empty tree would
  // say that everything was removed.
  if (workspace.restoring.empty() && !workspace.head.empty()) {
    CARREL_TRY(store.records().set_restoring(workspace.name, workspace.head));
  }
  CARREL_ASSIGN(const UniqueFd place, store.open_place(workspace.name));
  return ::unlinkat(place.get(), kMark, 0) == 0 || errno == ENOENT
             ? Status{}
             : Status{system_error("let go of the workspace '" + workspace.name + "'")};
}

}  // namespace carrel::storage
