#include "storage/workspaces/restore.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/open_below.h"
#include "storage/workspaces/attributes.h"
#include "storage/workspaces/current.h"
#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/layer_writer.h"
#include "storage/workspaces/rights.h"
#include "storage/workspaces/tree_index.h"
#include "storage/workspaces/watching.h"

namespace carrel::storage {

namespace {

Error restore_error(const std::string& path) { return system_error("restore '" + path + "'"); }

// Whose files would not fit, and why: what a sandbox holds open keeps its room.
Error with_hint(Error error) {
  if (error.error_number == ENOSPC && error.hint.empty()) {
    error.hint =
        "it does not fit: a larger --disk for a new workspace, or end what runs in this one";
  }
  return error;
}

// Makes one tree into another.
class Restorer {
 public:
  Restorer(WorkspaceStore& store, const WorkspaceRow& workspace, const SnapshotRow& snapshot)
      : store_(store),
        workspace_(workspace),
        snapshot_(snapshot),
        shown_(store.is_shown(workspace.name)) {}

  // Copies what will be needed beside the tree, and checks it. In a file system of the workspace's
  // own that has no room for both, it is only checked: the layers are elsewhere, and keep it.
  Status prepare() {
    CARREL_ASSIGN(directory_, store_.open_directory(workspace_));
    CARREL_ASSIGN(top_, store_.open_tree(workspace_));
    if (::fstat(top_.get(), &owner_) != 0) {
      return system_error("look at the workspace");
    }
    CARREL_TRY(open_stage());
    CARREL_ASSIGN(now_, current_tree(store_, workspace_));
    CARREL_ASSIGN(wanted_, store_.read_tree(snapshot_.layers));
    CARREL_ASSIGN(late_, is_tight());
    return late_ ? check_files() : stage_files();
  }

  // What was copied so far would keep a full disk full.
  void give_up() {
    if (shown_) {
      (void)remove_tree_at(top_.get(), kStageInTree);
    } else {
      (void)store_.clear_stage(directory_);
    }
  }

  // Moves it into place. To be done again after a crash, from prepare() on.
  Status apply() {
    CARREL_TRY(remove_unwanted());
    if (late_) {
      CARREL_TRY(remove_replaced());
      CARREL_TRY(stage_files());
    }
    std::size_t staged = 0;
    for (const auto& [path, node] : wanted_) {
      const bool moves = staged < staged_.size() && staged_[staged] == path;
      CARREL_TRY(place(path, node, moves ? std::to_string(staged) : std::string()));
      staged += moves ? 1 : 0;
    }
    if (shown_) {
      CARREL_TRY(remove_tree_at(top_.get(), kStageInTree));
    }
    for (auto at = wanted_.rbegin(); at != wanted_.rend(); ++at) {
      if (at->second.entry.kind == EntryKind::kDirectory) {
        CARREL_ASSIGN(const UniqueFd directory,
                      open_below(top_.get(), at->first, O_RDONLY | O_DIRECTORY));
        if (::fchmod(directory.get(), at->second.entry.mode) != 0) {
          return restore_error(at->first);
        }
        CARREL_TRY(write_attributes(directory.get(), at->second.entry.attributes, at->first));
        CARREL_TRY(set_times(directory.get(), at->second.entry.mtime_ns, at->first));
      }
    }
    return ::syncfs(top_.get()) == 0 ? Status{} : Status{system_error("sync the workspace")};
  }

  // The hashes are known: only the evidence has to be looked at.
  void write_new_index(Writers& writers) {
    const auto at = store_.open_place(workspace_.name);
    if (shown_ || !at.ok()) {
      return;
    }
    Watching watching(writers, top_.get(),
                      has_disk(at.value().get()) ? Watching::Use::kNone : Watching::Use::kPossible);
    auto scan = scan_tree(top_.get(), TreeForm::kPlain, {.watch = watching.for_walk({})});
    if (!scan.ok()) {
      return;
    }
    for (ScannedEntry& entry : scan->entries) {
      const auto known = wanted_.find(entry.path);
      if (known == wanted_.end() || known->second.entry.kind != entry.kind) {
        return;
      }
      entry.hash = known->second.entry.hash;
      entry.attributes = known->second.entry.attributes;
    }
    TreeIndex index = scan->make_index({});
    index.set_snapshot(snapshot_.id);
    if (draft_index(directory_.get(), "index", index).ok() &&
        place_index(directory_.get(), "index").ok()) {
      watching.keep(snapshot_.id, index.began_ns());
    }
  }

 private:
  // The files of a sandbox's memory can be moved only within it.
  Status open_stage() {
    const int above = shown_ ? top_.get() : directory_.get();
    const char* name = shown_ ? kStageInTree : "stage";
    CARREL_TRY(remove_tree_at(above, name));
    const FilesAs owner(owner_, owners());
    if (::mkdirat(above, name, 0700) != 0) {
      return system_error("make a place for what is restored");
    }
    CARREL_ASSIGN(stage_, open_at(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    return {};
  }

  // A sandbox's memory knows no owners but its own.
  [[nodiscard]] FilesAs::Owners owners() const {
    return shown_ ? FilesAs::Owners::kOne : FilesAs::Owners::kAny;
  }

  // Whether the tree has this file already, and no other name of it is to become another file.
  [[nodiscard]] bool is_there(const TreeNode& node) const {
    const auto found = now_.find(node.entry.path);
    return found != now_.end() && found->second.entry.kind == node.entry.kind &&
           found->second.entry.hash == node.entry.hash &&
           found->second.entry.target == node.entry.target;
  }

  // Whether the contents of this one have to come from a layer.
  [[nodiscard]] bool is_needed(const TreeNode& node) const {
    return node.entry.kind == EntryKind::kFile && node.entry.target.empty() && !is_there(node);
  }

  // Whether a file system of the workspace's own cannot have the new files beside the old ones.
  Result<bool> is_tight() {
    struct stat own{};
    struct stat home{};
    struct statvfs room{};
    if (::fstat(stage_.get(), &own) != 0 || ::fstat(store_.home().directory(), &home) != 0 ||
        ::fstatvfs(stage_.get(), &room) != 0) {
      return system_error("look at the workspace");
    }
    constexpr std::uint64_t kSpareBlocks = 64;
    constexpr std::uint64_t kSpareFiles = 8;
    std::uint64_t blocks = kSpareBlocks;
    std::uint64_t files = kSpareFiles;
    for (const auto& [path, node] : wanted_) {
      if (is_needed(node)) {
        blocks += node.entry.size / room.f_frsize + 2;
        ++files;
      }
    }
    return own.st_dev != home.st_dev && (blocks > room.f_bfree || files > room.f_ffree);
  }

  Error damaged(const std::string& path) const {
    return Error{Code::kInvalid, 0,
                 "the snapshot " + snapshot_.id + " is damaged: '" + path + "' has changed",
                 "nothing was restored"};
  }

  Status check_files() {
    for (const auto& [path, node] : wanted_) {
      if (!is_needed(node)) {
        continue;
      }
      CARREL_ASSIGN(const UniqueFd layer, store_.open_layer(node.layer));
      CARREL_ASSIGN(const UniqueFd top, open_at(layer.get(), "tree", O_RDONLY | O_DIRECTORY));
      CARREL_ASSIGN(const ContentHash hash, hash_synced(top.get(), node.entry.path));
      if (hash != node.entry.hash) {
        return damaged(path);
      }
    }
    return {};
  }

  Status stage_files() {
    for (const auto& [path, node] : wanted_) {
      if (is_needed(node)) {
        CARREL_TRY(stage_file(path, node));
      }
    }
    return ::syncfs(stage_.get()) == 0 ? Status{} : Status{system_error("sync the workspace")};
  }

  // What will be made anew under its name.
  Status remove_replaced() {
    for (const auto& [path, node] : now_) {
      const auto wanted = wanted_.find(path);
      if (wanted == wanted_.end() || node.entry.kind == EntryKind::kDirectory ||
          (node.entry.kind == EntryKind::kFile && is_there(wanted->second))) {
        continue;
      }
      const auto [parent, name] = split_path(path);
      CARREL_ASSIGN(const UniqueFd directory, open_below(top_.get(), parent, O_PATH | O_DIRECTORY));
      if (::unlinkat(directory.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
        return restore_error(path);
      }
    }
    return {};
  }

  Status stage_file(const std::string& path, const TreeNode& node) {
    CARREL_ASSIGN(const UniqueFd contents, open_contents(store_, workspace_, node));
    const FilesAs owner(owner_, owners());
    CARREL_ASSIGN(const UniqueFd copy, open_at(stage_.get(), std::to_string(staged_.size()),
                                               O_WRONLY | O_CREAT | O_EXCL, 0600));
    CARREL_ASSIGN(const HashedCopy hashed, copy_hashed(contents.get(), copy.get(), path));
    if (hashed.hash != node.entry.hash) {
      return damaged(path);
    }
    CARREL_TRY(write_attributes(copy.get(), node.entry.attributes, path));
    if ((owner_.st_uid != ::geteuid() && ::fchown(copy.get(), owner_.st_uid, owner_.st_gid) != 0) ||
        ::fchmod(copy.get(), node.entry.mode) != 0) {
      return restore_error(path);
    }
    CARREL_TRY(set_times(copy.get(), node.entry.mtime_ns, path));
    staged_.push_back(path);
    return {};
  }

  Status remove_unwanted() {
    for (auto at = now_.rbegin(); at != now_.rend(); ++at) {
      const auto wanted = wanted_.find(at->first);
      const bool stays =
          wanted != wanted_.end() && (wanted->second.entry.kind == EntryKind::kDirectory) ==
                                         (at->second.entry.kind == EntryKind::kDirectory);
      if (stays) {
        continue;
      }
      const auto [parent, name] = split_path(at->first);
      CARREL_ASSIGN(const UniqueFd directory, open_below(top_.get(), parent, O_PATH | O_DIRECTORY));
      CARREL_TRY(remove_tree_at(directory.get(), name));
    }
    return {};
  }

  Status place(const std::string& path, const TreeNode& node, const std::string& staged) {
    const TreeEntry& entry = node.entry;
    const auto [above, name] = split_path(path);
    CARREL_ASSIGN(const UniqueFd parent, open_below(top_.get(), above, O_PATH | O_DIRECTORY));
    switch (entry.kind) {
      case EntryKind::kDirectory:
        return make_directory(parent.get(), name, path);
      case EntryKind::kFile:
        if (!staged.empty()) {
          return move(staged, parent.get(), name, path);
        }
        return entry.target.empty() ? touch(path, entry) : link(parent.get(), name, entry);
      case EntryKind::kLink:
        return make(parent.get(), name, path, entry,
                    [&] { return ::symlinkat(entry.target.c_str(), stage_.get(), "link"); });
      case EntryKind::kPipe:
        return make(parent.get(), name, path, entry,
                    [&] { return ::mknodat(stage_.get(), "link", S_IFIFO | entry.mode, 0); });
      case EntryKind::kGone:
        break;
    }
    return {};
  }

  Status give_away(int dir, const char* name, const std::string& path) {
    if (owner_.st_uid != ::geteuid() &&
        ::fchownat(dir, name, owner_.st_uid, owner_.st_gid, AT_SYMLINK_NOFOLLOW) != 0) {
      return restore_error(path);
    }
    return {};
  }

  Status make_directory(int parent, const std::string& name, const std::string& path) {
    const FilesAs owner(owner_, owners());
    if (::mkdirat(parent, name.c_str(), 0700) != 0) {
      return errno == EEXIST ? Status{} : Status{restore_error(path)};
    }
    return give_away(parent, name.c_str(), path);
  }

  Status move(const std::string& staged, int parent, const std::string& name,
              const std::string& path) {
    const FilesAs owner(owner_, owners());
    return ::renameat(stage_.get(), staged.c_str(), parent, name.c_str()) == 0
               ? Status{}
               : Status{restore_error(path)};
  }

  // The contents are right: only the mode and the time may not be.
  Status touch(const std::string& path, const TreeEntry& entry) {
    CARREL_ASSIGN(const UniqueFd file, open_below(top_.get(), path, O_RDONLY | O_NONBLOCK));
    if (::fchmod(file.get(), entry.mode) != 0) {
      return restore_error(path);
    }
    CARREL_TRY(write_attributes(file.get(), entry.attributes, path));
    return set_times(file.get(), entry.mtime_ns, path);
  }

  // One more name of a file that is in its place already, since it comes before this one.
  Status link(int parent, const std::string& name, const TreeEntry& entry) {
    return make(parent, name, entry.path, entry, [&] {
      return ::linkat(top_.get(), entry.target.c_str(), stage_.get(), "link", 0);
    });
  }

  template <typename Make>
  Status make(int parent, const std::string& name, const std::string& path, const TreeEntry& entry,
              Make make_it) {
    ::unlinkat(stage_.get(), "link", 0);
    {
      const FilesAs owner(owner_, owners());
      if (make_it() != 0) {
        return restore_error(path);
      }
    }
    if (entry.kind != EntryKind::kFile) {
      CARREL_TRY(give_away(stage_.get(), "link", path));
      CARREL_TRY(set_times_at(stage_.get(), "link", entry.mtime_ns, path));
    }
    CARREL_TRY(move("link", parent, name, path));
    ::unlinkat(stage_.get(), "link", 0);  // two names of one file are not moved over each other
    return {};
  }

  WorkspaceStore& store_;
  const WorkspaceRow& workspace_;
  const SnapshotRow& snapshot_;
  bool shown_;  // its files are in a sandbox's memory
  struct stat owner_{};
  UniqueFd directory_;
  UniqueFd top_;
  UniqueFd stage_;
  Tree now_;
  Tree wanted_;
  bool late_ = false;                // there is room only when the old files are gone
  std::vector<std::string> staged_;  // the paths of the files in stage/, by their number there
};

// A fork begins anew over the layers of the snapshot.
Status restart_fork(WorkspaceStore& store, const WorkspaceRow& workspace,
                    const SnapshotRow& snapshot) {
  CARREL_ASSIGN(const UniqueFd directory, store.open_directory(workspace));
  CARREL_TRY(remove_tree_at(directory.get(), "tree"));
  CARREL_TRY(remove_tree_at(directory.get(), "work"));
  CARREL_TRY(remove_tree_at(directory.get(), "index"));
  CARREL_TRY(store.open_directory(workspace));
  CARREL_TRY(store.records().set_base(workspace.name, snapshot.id));
  CARREL_ASSIGN(const UniqueFd place, store.open_place(workspace.name));
  forget_damage(place.get());
  return {};
}

Status carry_out(WorkspaceStore& store, const WorkspaceRow& workspace, const SnapshotRow& snapshot,
                 Writers& writers) {
  WorkspaceRecords& records = store.records();
  if (workspace.form == TreeForm::kUpper) {
    CARREL_TRY(records.set_restoring(workspace.name, snapshot.id));
    return restart_fork(store, workspace, snapshot);
  }
  Restorer restorer(store, workspace, snapshot);
  Status ready = restorer.prepare();
  if (ready.ok()) {
    ready = records.set_restoring(workspace.name, snapshot.id);
  }
  if (!ready.ok()) {
    restorer.give_up();
    return ready;
  }
  CARREL_TRY(restorer.apply());
  CARREL_TRY(records.set_head(workspace.name, snapshot.id));
  CARREL_ASSIGN(const UniqueFd place, store.open_place(workspace.name));
  forget_damage(place.get());
  restorer.write_new_index(writers);
  return {};
}

}  // namespace

Status restore_snapshot(WorkspaceStore& store, const WorkspaceRow& workspace,
                        const SnapshotRow& snapshot, Writers& writers) {
  CARREL_TRY(writers.freeze());
  Status done = carry_out(store, workspace, snapshot, writers);
  writers.thaw();
  return done.ok() ? done : Status{with_hint(std::move(done.error()))};
}

Status finish_restore(WorkspaceStore& store, const WorkspaceRow& workspace, Writers& writers) {
  if (workspace.restoring.empty()) {
    return {};
  }
  CARREL_ASSIGN(const SnapshotRow snapshot, store.snapshot(workspace.restoring));
  return restore_snapshot(store, workspace, snapshot, writers);
}

}  // namespace carrel::storage
