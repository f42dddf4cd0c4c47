#include "cli/workspace_source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

#include "base/files.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "manager/owned.h"
#include "storage/mount_facts.h"
#include "storage/state.h"
#include "storage/workspaces/source.h"

namespace carrel::cli {

namespace {

// "project-3fa91c", after the directory.
std::string name_after(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string().substr(0, 40);
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '.' && c != '-'; },
      '-');
  if (name.empty() || std::isalnum(static_cast<unsigned char>(name[0])) == 0) {
    name.insert(0, "copy");
  }
  return name + "-" + storage::random_hex(6);
}

}  // namespace

Status copy_source(const Context& context, const storage::Home& home, policy::Spec& spec,
                   const std::string& goes_with) {
  const auto given = context.arguments.value(OptionId::kWorkspaceFrom);
  if (!given.has_value()) {
    return {};
  }
  CARREL_ASSIGN(const storage::OwnPlaces own, own_places(context.arguments));
  CARREL_ASSIGN(const std::vector<policy::ForbiddenPath> forbidden,
                storage::host_forbidden_paths(own));
  CARREL_ASSIGN(const storage::MountJudge judge, storage::MountJudge::open(forbidden));
  const std::string asked = std::filesystem::absolute(std::string(*given)).lexically_normal();
  CARREL_ASSIGN(const storage::JudgedMount judged,
                judge.grant(spec.mount_grants, {asked, policy::MountMode::kReadOnly}));
  CARREL_ASSIGN(const UniqueFd directory,
                open_at(judged.source.get(), ".", O_RDONLY | O_DIRECTORY));
  storage::WorkspaceSource source;
  source.directory = directory.get();
  source.path = judged.decision.real_path;
  for (const policy::Entry& entry : judged.decision.hidden) {
    source.without.insert(entry.path);
    if (!context.json()) {
      print_error("carrel: left out of the workspace: " + printable(entry.path) + " (" +
                  std::string(policy::hidden_because(entry.why)) + ")\n");
    }
  }
  storage::WorkspaceRow row;
  row.name = spec.workspace.empty() ? name_after(source.path) : spec.workspace;
  row.created_ms = storage::wall_clock_ms();
  row.used_ms = row.created_ms;
  row.disk_bytes = spec.limits.disk_bytes;
  row.for_box = goes_with;
  CARREL_ASSIGN(storage::WorkspaceStore store, storage::WorkspaceStore::open(home));
  CARREL_TRY(storage::copy_workspace(store, row, source));
  spec.workspace = row.name;
  return {};
}

CopiedSource::~CopiedSource() {
  if (!unnamed_.empty()) {
    goes_with_this_run();
    manager::remove_left_over(*home_);
  }
}

Status CopiedSource::copy(const Context& context, policy::Spec& spec) {
  const bool named = !spec.workspace.empty();
  CARREL_TRY(copy_source(context, *home_, spec));
  unnamed_ = named ? std::string() : spec.workspace;
  return {};
}

void CopiedSource::goes_with_this_run() {
  constexpr const char* kNoSandbox = "one-shot";
  if (unnamed_.empty()) {
    return;  // to open the database would cost a third of a one-shot
  }
  if (auto records = storage::WorkspaceRecords::open(*home_); records.ok()) {
    (void)records.value().set_for_box(unnamed_, kNoSandbox);
  }
}

Status CopiedSource::goes_with(const std::string& sandbox) {
  if (unnamed_.empty()) {
    return {};
  }
  CARREL_ASSIGN(auto records, storage::WorkspaceRecords::open(*home_));
  CARREL_TRY(records.set_for_box(unnamed_, sandbox));
  unnamed_.clear();
  return {};
}

}  // namespace carrel::cli
