#include <fcntl.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "cli/context.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "manager/workspace_target.h"
#include "storage/mount_facts.h"
#include "storage/workspaces/carry.h"
#include "storage/workspaces/current.h"
#include "storage/workspaces/source.h"

namespace carrel::cli {

namespace {

using Json = nlohmann::ordered_json;
using storage::Carry;
using storage::Change;

// What git itself runs or obeys is carried over only if it is named.
bool acts_by_itself(std::string_view path) {
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    // Some file systems do not tell .GIT from .git.
    if (name.size() == 4 && ::strncasecmp(name.data(), ".git", 4) == 0) {
      return true;
    }
    path.remove_prefix(std::min(path.size(), name.size() + 1));
  }
  return false;
}

bool is_chosen(const std::string& changed, const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return storage::lies_in(changed, path) && (acts_by_itself(path) || !acts_by_itself(changed));
  });
}

// Of a file that was renamed one name may be chosen and the other not.
std::vector<storage::Difference> choose(std::vector<storage::Difference> changes,
                                        const std::vector<std::string>& paths) {
  std::vector<storage::Difference> chosen;
  for (storage::Difference& change : changes) {
    if (change.change == Change::kRenamed && !is_chosen(change.from, paths)) {
      change.change = Change::kAdded;
      change.from.clear();
      change.before.reset();
    } else if (change.change == Change::kRenamed && !is_chosen(change.path, paths)) {
      change.change = Change::kDeleted;
      change.path = std::exchange(change.from, {});
      change.after.reset();
    }
    if (is_chosen(change.path, paths)) {
      chosen.push_back(std::move(change));
    }
  }
  return chosen;
}

// The paths that were given, from the top of the workspace; without any the top itself.
std::vector<std::string> chosen_paths(const Context& context) {
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < context.arguments.operands.size(); ++i) {
    std::string path(context.arguments.operands[i]);
    if (path == "/workspace" || path.starts_with("/workspace/")) {
      path.erase(0, std::string_view("/workspace/").size());
    }
    while (path.ends_with('/')) {
      path.pop_back();
    }
    path = path.starts_with("./") ? path.substr(2) : path;
    paths.push_back(path == "." ? "" : path);
  }
  return paths.empty() ? std::vector<std::string>{""} : paths;
}

// The directory, opened as a writable mount of it would be.
Result<UniqueFd> open_source(const Context& context, const std::string& path) {
  CARREL_ASSIGN(const storage::OwnPlaces own, own_places(context.arguments));
  CARREL_ASSIGN(const std::vector<policy::ForbiddenPath> forbidden,
                storage::host_forbidden_paths(own));
  CARREL_ASSIGN(const storage::MountJudge judge, storage::MountJudge::open(forbidden));
  CARREL_ASSIGN(const storage::JudgedMount judged,
                judge.grant({}, {path, policy::MountMode::kReadWrite}));
  return open_at(judged.source.get(), ".", O_RDONLY | O_DIRECTORY);
}

std::string line_of(const storage::Difference& change) {
  return std::string(1, "AMDR"[static_cast<int>(change.change)]) + "  " +
         (change.from.empty() ? "" : printable(change.from) + " -> ") + printable(change.path);
}

bool is_agreed(const Context& context, std::size_t count, const std::string& directory) {
  if (context.arguments.has(OptionId::kYes)) {
    return true;
  }
  if (context.json() || ::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0) {
    return false;
  }
  print_error("apply " + std::to_string(count) + (count == 1 ? " change" : " changes") + " to " +
              printable(directory) + "? [y/N] ");
  std::string answer(16, '\0');
  const ssize_t n = ::read(STDIN_FILENO, answer.data(), answer.size());
  return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

Result<std::vector<Carry>> find_changes(const Context& context, manager::WorkspaceTarget& at,
                                        int directory) {
  auto origin = at.store->find_snapshot(at.row, storage::kOrigin);
  if (!origin.ok()) {
    origin.error().message = "the snapshot of what the workspace began as is gone";
    return origin.error();
  }
  CARREL_ASSIGN(const storage::Tree before, at.store->read_tree(origin->layers));
  CARREL_ASSIGN(const storage::Tree after, storage::current_tree(*at.store, at.row));
  const std::vector<storage::Difference> changes = storage::compare_trees(before, after);
  const std::vector<std::string> paths = chosen_paths(context);
  for (const std::string& path : paths) {
    if (!path.empty() && !before.contains(path) && !after.contains(path)) {
      return Error{Code::kNotFound, 0, "the workspace has and had no '" + path + "'",
                   "see 'carrel diff --from origin --names'"};
    }
  }
  return storage::judge_changes(directory, choose(changes, paths));
}

// What is new comes first, then what is removed, a directory after what is in it, and last what
// takes the place of a directory, which is empty by then.
void order_changes(std::vector<Carry>& carries) {
  const auto rank = [](const Carry& carry) {
    const storage::Difference& change = carry.difference;
    if (change.change == Change::kDeleted) {
      return 1;
    }
    const bool replaces = change.change == Change::kModified &&
                          change.before->entry.kind == storage::EntryKind::kDirectory &&
                          change.after->entry.kind != storage::EntryKind::kDirectory;
    return replaces ? 2 : 0;
  };
  std::vector<Carry> ordered;
  for (int wanted = 0; wanted < 3; ++wanted) {
    const std::size_t start = ordered.size();
    std::copy_if(carries.begin(), carries.end(), std::back_inserter(ordered),
                 [&](const Carry& carry) { return rank(carry) == wanted; });
    if (wanted == 1) {
      std::reverse(ordered.begin() + static_cast<std::ptrdiff_t>(start), ordered.end());
    }
  }
  carries = std::move(ordered);
}

}  // namespace

int apply_command(const Context& context) {
  auto target = manager::open_workspace_target(std::string(context.arguments.operands.front()));
  if (!target.ok()) {
    return fail(context, target.error());
  }
  manager::WorkspaceTarget& at = **target;
  if (at.row.source.empty()) {
    return fail(context, Error{Code::kInvalid, 0,
                               "the workspace '" + at.row.name + "' is no copy of a directory",
                               "such a one is made by --workspace-from DIR"});
  }
  auto directory = open_source(context, at.row.source);
  if (!directory.ok()) {
    return fail(context, directory.error());
  }
  auto carries = find_changes(context, at, directory->get());
  if (!carries.ok()) {
    return fail(context, carries.error());
  }
  std::vector<storage::Difference> there_already;
  for (const Carry& carry : carries.value()) {
    if (carry.done) {
      there_already.push_back(carry.difference);
    }
  }
  std::erase_if(carries.value(), [](const Carry& carry) { return carry.done; });
  Json conflicts = Json::array();
  for (const Carry& carry : carries.value()) {
    if (!carry.refusal.empty()) {
      conflicts.push_back(Json{{"path", carry.difference.path}, {"reason", carry.refusal}});
      if (!context.json()) {
        print_error("carrel: " + printable(carry.difference.path) + ": " +
                    printable(carry.refusal) + "\n");
      }
    } else if (!context.json()) {
      print(line_of(carry.difference) + "\n");
    }
  }
  if (!conflicts.empty()) {
    if (context.json()) {
      print(Json{{"applied", Json::array()}, {"conflicts", conflicts}}.dump(
                -1, ' ', false, Json::error_handler_t::replace) +
            "\n");
      return kCarrelFailed;
    }
    return fail(context, Error{Code::kConflict, 0, "nothing was applied to '" + at.row.source + "'",
                               "name the paths that can be applied, or settle the others by hand"});
  }
  if (!carries->empty() && !is_agreed(context, carries->size(), at.row.source)) {
    return fail(context, Error{Code::kDenied, 0, "nothing was applied to '" + at.row.source + "'",
                               "say --yes to apply without being asked"});
  }
  order_changes(carries.value());
  Json applied = Json::array();
  std::vector<storage::Difference> carried;
  Status done;
  for (const Carry& carry : carries.value()) {
    if (done = storage::carry_change(*at.store, at.row, directory->get(), carry.difference);
        !done.ok()) {
      break;
    }
    applied.push_back(carry.difference.path);
    carried.push_back(carry.difference);
  }
  carried.insert(carried.end(), there_already.begin(), there_already.end());
  if (auto origin = at.store->find_snapshot(at.row, storage::kOrigin);
      origin.ok() && !carried.empty()) {
    // If this fails, the next time finds a conflict where there is none.
    (void)storage::note_carried(*at.store, at.row, origin.value(), carried);
  }
  if (!done.ok()) {
    return fail(context, done.error());
  }
  if (context.json()) {
    print(Json{{"applied", applied}, {"conflicts", conflicts}}.dump(
              -1, ' ', false, Json::error_handler_t::replace) +
          "\n");
  }
  return 0;
}

}  // namespace carrel::cli
