#include <fcntl.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/context.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "cli/table.h"
#include "policy/size.h"
#include "storage/disk_use.h"
#include "storage/workspaces/charge.h"
#include "storage/workspaces/rights.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Owner {
  std::uint64_t workspaces = 0;
  std::uint64_t bytes = 0;      // of those
  std::uint64_t snapshots = 0;  // bytes
};

// By name; the operator's is empty.
Result<std::map<std::string, Owner>> owners_of(const storage::Home& home) {
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  CARREL_ASSIGN(const std::vector<storage::WorkspaceRow> rows, store.records().list());
  std::map<std::string, Owner> owners;
  for (const storage::WorkspaceRow& row : rows) {
    CARREL_ASSIGN(const storage::DiskUse use,
                  storage::look_at_disk_use_of(home, "workspaces/" + row.name));
    Owner& owner = owners[row.owner];
    ++owner.workspaces;
    owner.bytes += use.bytes;
  }
  for (auto& [name, owner] : owners) {
    CARREL_ASSIGN(owner.snapshots, store.records().layer_bytes(name));
  }
  return owners;
}

}  // namespace

int df_command(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  storage::gain_rights_over_own_files();
  auto uses = storage::look_at_disk_use(home.value());
  auto owners =
      uses.ok() ? owners_of(home.value()) : Result<std::map<std::string, Owner>>(uses.error());
  if (!owners.ok()) {
    return fail(context, owners.error());
  }
  std::vector<std::vector<std::string>> lines = {{"WHAT", "FILES", "ON DISK"}};
  Json kinds = Json::array();
  storage::DiskUse all;
  for (std::size_t i = 0; i < uses->size(); ++i) {
    const std::string name(storage::name_of(static_cast<storage::KeptFor>(i)));
    const storage::DiskUse& use = uses->at(i);
    lines.push_back({name, std::to_string(use.files), size_text(use.bytes)});
    kinds.push_back({{"what", name}, {"files", use.files}, {"disk_bytes", use.bytes}});
    all.files += use.files;
    all.bytes += use.bytes;
  }
  lines.push_back({"all", std::to_string(all.files), size_text(all.bytes)});
  std::vector<std::vector<std::string>> whose = {{"OWNER", "WORKSPACES", "ON DISK", "SNAPSHOTS"}};
  Json list = Json::array();
  for (const auto& [name, owner] : owners.value()) {
    whose.push_back({name.empty() ? "-" : name, std::to_string(owner.workspaces),
                     size_text(owner.bytes), size_text(owner.snapshots)});
    list.push_back({{"owner", name.empty() ? Json() : Json(name)},
                    {"workspaces", owner.workspaces},
                    {"workspaces_bytes", owner.bytes},
                    {"snapshots_bytes", owner.snapshots}});
  }
  if (context.json()) {
    print(Json{{"home", home->path()},
               {"disk_bytes", all.bytes},
               {"kinds", std::move(kinds)},
               {"owners", std::move(list)}}
              .dump(-1, ' ', false, Json::error_handler_t::replace) +
          "\n");
    return 0;
  }
  print(table(lines));
  // The operator alone owns everything on most hosts.
  if (owners->size() > 1 || (owners->size() == 1 && !owners->contains(""))) {
    print("\n" + table(whose));
  }
  return 0;
}

}  // namespace carrel::cli
