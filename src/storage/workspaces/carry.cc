#include "storage/workspaces/carry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/files.h"
#include "base/open_below.h"
#include "storage/workspaces/current.h"
#include "storage/workspaces/flatten.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

namespace {

// What the directory has at a path now; absent when there is nothing.
Result<std::optional<TreeEntry>> look_at(int directory, const std::string& path) {
  const auto [above, name] = split_path(path);
  auto parent = open_below(directory, above, O_PATH | O_DIRECTORY);
  struct stat info{};
  if (!parent.ok()) {
    const int reason = parent.error().error_number;
    return reason == ENOENT || reason == ENOTDIR ? Result<std::optional<TreeEntry>>(std::nullopt)
                                                 : Result<std::optional<TreeEntry>>(parent.error());
  }
  if (::fstatat(parent->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT
               ? Result<std::optional<TreeEntry>>(std::nullopt)
               : Result<std::optional<TreeEntry>>(system_error("look at '" + path + "'"));
  }
  TreeEntry entry = describe(info);
  entry.path = path;
  if (entry.kind == EntryKind::kLink) {
    std::array<char, 4097> target{};
    const ssize_t n = ::readlinkat(parent->get(), name.c_str(), target.data(), target.size());
    entry.target.assign(target.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  } else if (S_ISREG(info.st_mode)) {
    CARREL_ASSIGN(entry.hash, hash_synced(directory, path));
  }
  return std::optional<TreeEntry>(std::move(entry));
}

// Contents and kind. A directory of a host has modes of its own.
bool is_the_same(const std::optional<TreeEntry>& found, const std::optional<TreeNode>& node) {
  if (!found.has_value() || !node.has_value()) {
    return found.has_value() == node.has_value();
  }
  const TreeEntry& entry = node->entry;
  return found->kind == entry.kind && found->hash == entry.hash &&
         (entry.kind != EntryKind::kLink || found->target == entry.target) &&
         (entry.kind != EntryKind::kFile || (found->mode & 0100) == (entry.mode & 0100));
}

// Whether a link of the workspace stays in the directory, wherever that is.
bool stays_inside(const std::string& path, const std::string& target) {
  if (target.starts_with('/')) {
    return false;
  }
  std::ptrdiff_t depth = std::count(path.begin(), path.end(), '/');
  std::size_t at = 0;
  while (at <= target.size()) {
    const std::size_t slash = std::min(target.find('/', at), target.size());
    const std::string_view name = std::string_view(target).substr(at, slash - at);
    depth += name == ".." ? -1 : name.empty() || name == "." ? 0 : 1;
    if (depth < 0) {
      return false;
    }
    at = slash + 1;
  }
  return true;
}

std::string refusal_of(const Difference& change, const std::optional<TreeEntry>& found,
                       const std::optional<TreeEntry>& found_before) {
  if (change.after.has_value() && change.after->entry.kind == EntryKind::kPipe) {
    return "it is a pipe";
  }
  if (change.after.has_value() && change.after->entry.kind == EntryKind::kLink &&
      !stays_inside(change.path, change.after->entry.target)) {
    return "it is a link that leads out of the directory";
  }
  if (change.change == Change::kRenamed) {
    return found.has_value()                           ? "something is there already"
           : !is_the_same(found_before, change.before) ? "'" + change.from + "' was changed there"
                                                       : "";
  }
  if (!is_the_same(found, change.before)) {
    return change.before.has_value() ? "it was changed there, too" : "something is there already";
  }
  return {};
}

// What root writes into somebody's directory is that one's.
Status give_to_owner_of(int parent, int made, const std::string& path) {
  struct stat info{};
  if (::geteuid() != 0) {
    return {};
  }
  return ::fstat(parent, &info) == 0 && ::fchown(made, info.st_uid, info.st_gid) == 0
             ? Status{}
             : Status{system_error("write '" + path + "'")};
}

Error carry_error(const std::string& path) { return system_error("write '" + path + "'"); }

Status remove_entry(int directory, const std::string& path, EntryKind kind) {
  const auto [above, name] = split_path(path);
  CARREL_ASSIGN(const UniqueFd parent, open_below(directory, above, O_PATH | O_DIRECTORY));
  const int flags = kind == EntryKind::kDirectory ? AT_REMOVEDIR : 0;
  // A directory in which there is something that the workspace never had stays.
  if (::unlinkat(parent.get(), name.c_str(), flags) != 0 && errno != ENOENT && errno != ENOTEMPTY) {
    return carry_error(path);
  }
  return {};
}

Status write_file(WorkspaceStore& store, const WorkspaceRow& workspace, const TreeNode& node,
                  int parent, const std::string& name) {
  const std::string draft = ".carrel-" + random_hex(12);
  CARREL_ASSIGN(const UniqueFd contents, open_contents(store, workspace, node));
  CARREL_ASSIGN(const UniqueFd copy,
                open_at(parent, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  const auto finish = [&]() -> Status {
    CARREL_ASSIGN(const HashedCopy hashed,
                  copy_hashed(contents.get(), copy.get(), node.entry.path));
    if (hashed.hash != node.entry.hash) {
      return Error{Code::kConflict, 0, "'" + node.entry.path + "' changed while it was read", {}};
    }
    CARREL_TRY(give_to_owner_of(parent, copy.get(), node.entry.path));
    const mode_t mode = 0644U | ((node.entry.mode & 0100) != 0 ? 0111U : 0U);
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(copy.get(), mode & ~mask) != 0 || ::fsync(copy.get()) != 0 ||
        ::renameat(parent, draft.c_str(), parent, name.c_str()) != 0) {
      return carry_error(node.entry.path);
    }
    return {};
  };
  Status finished = finish();
  if (!finished.ok()) {
    ::unlinkat(parent, draft.c_str(), 0);
  }
  return finished;
}

Status make_link(int parent, const std::string& name, const TreeEntry& entry) {
  const std::string draft = ".carrel-" + random_hex(12);
  if (::symlinkat(entry.target.c_str(), parent, draft.c_str()) != 0) {
    return carry_error(entry.path);
  }
  if (::renameat(parent, draft.c_str(), parent, name.c_str()) != 0) {
    const Error error = carry_error(entry.path);
    ::unlinkat(parent, draft.c_str(), 0);
    return error;
  }
  return {};
}

// The directory above a path, with those that are missing.
Result<UniqueFd> open_above(int directory, const std::string& path) {
  CARREL_ASSIGN(UniqueFd at, open_below(directory, "", O_RDONLY | O_DIRECTORY));
  std::size_t start = 0;
  for (std::size_t slash = path.find('/'); slash != std::string::npos;
       slash = path.find('/', start)) {
    const std::string name = path.substr(start, slash - start);
    const bool made = ::mkdirat(at.get(), name.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) {
      return carry_error(path.substr(0, slash));
    }
    CARREL_ASSIGN(UniqueFd next, open_at(at.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (made) {
      CARREL_TRY(give_to_owner_of(at.get(), next.get(), path));
    }
    at = std::move(next);
    start = slash + 1;
  }
  return at;
}

// The changes as entries of a layer, in order.
std::vector<ScannedEntry> as_entries(const std::vector<Difference>& carried) {
  std::vector<ScannedEntry> entries;
  const auto add_gone = [&](const std::string& path) {
    ScannedEntry gone;
    gone.path = path;
    gone.kind = EntryKind::kGone;
    entries.push_back(std::move(gone));
  };
  for (const Difference& change : carried) {
    if (change.after.has_value()) {
      ScannedEntry entry;
      static_cast<TreeEntry&>(entry) = change.after->entry;
      entries.push_back(std::move(entry));
    } else {
      add_gone(change.path);
    }
    if (!change.from.empty()) {
      add_gone(change.from);
    }
  }
  std::sort(entries.begin(), entries.end(), [](const ScannedEntry& a, const ScannedEntry& b) {
    return comes_before(a.path, b.path);
  });
  return entries;
}

}  // namespace

Status note_carried(WorkspaceStore& store, const WorkspaceRow& workspace, const SnapshotRow& origin,
                    const std::vector<Difference>& carried) {
  CARREL_ASSIGN(const UniqueFd directory, store.open_directory(workspace));
  CARREL_ASSIGN(const UniqueFd tree, open_at(directory.get(), "tree", O_RDONLY | O_DIRECTORY));
  CARREL_ASSIGN(WorkspaceStore::Draft draft, store.make_layer());
  LayerWriter writer(tree.get(), draft.tree.get());
  std::vector<TreeEntry> changes;
  std::string hidden;  // what was below this is gone with it
  for (ScannedEntry& entry : as_entries(carried)) {
    if (!hidden.empty() && lies_in(entry.path, hidden)) {
      continue;
    }
    hidden = entry.kind == EntryKind::kDirectory ? hidden : entry.path;
    const ContentHash hash = entry.hash;
    CARREL_TRY(writer.add(entry));
    if (entry.hash != hash) {
      return Error{Code::kConflict, 0, "'" + entry.path + "' changed meanwhile", {}};
    }
    changes.push_back(entry);
  }
  CARREL_ASSIGN(LayerFiles files, writer.finish());
  CARREL_ASSIGN(LayerRef layer, store.finish_layer(draft, changes, files));
  SnapshotRow now = origin;
  now.layers.push_back(std::move(layer));
  CARREL_TRY(store.records().set_layers(now.id, now.layers));
  draft.directory.reset();
  (void)flatten(store, now);
  return {};
}

Result<std::vector<Carry>> judge_changes(int directory, const std::vector<Difference>& changes) {
  std::vector<Carry> judged;
  for (const Difference& change : changes) {
    Carry carry{change, {}};
    CARREL_ASSIGN(const std::optional<TreeEntry> found, look_at(directory, change.path));
    std::optional<TreeEntry> before;
    if (!change.from.empty()) {
      CARREL_ASSIGN(before, look_at(directory, change.from));
    }
    carry.done = is_the_same(found, change.after) && !before.has_value();
    carry.refusal = carry.done ? "" : refusal_of(change, found, before);
    judged.push_back(std::move(carry));
  }
  return judged;
}

Status carry_change(WorkspaceStore& store, const WorkspaceRow& workspace, int directory,
                    const Difference& change) {
  if (!change.after.has_value()) {
    return remove_entry(directory, change.path, change.before->entry.kind);
  }
  const TreeEntry& entry = change.after->entry;
  const bool was_directory =
      change.before.has_value() && change.before->entry.kind == EntryKind::kDirectory;
  if (change.change == Change::kModified &&
      was_directory != (entry.kind == EntryKind::kDirectory)) {
    CARREL_TRY(remove_entry(directory, change.path, change.before->entry.kind));
  }
  CARREL_ASSIGN(const UniqueFd parent, open_above(directory, change.path));
  const std::string name = split_path(change.path).second;
  if (entry.kind == EntryKind::kDirectory) {
    CARREL_TRY(open_above(directory, change.path + "/"));
  } else if (entry.kind == EntryKind::kLink) {
    CARREL_TRY(make_link(parent.get(), name, entry));
  } else {
    CARREL_TRY(write_file(store, workspace, *change.after, parent.get(), name));
  }
  if (change.change == Change::kRenamed) {
    return remove_entry(directory, change.from, EntryKind::kFile);
  }
  return {};
}

}  // namespace carrel::storage
