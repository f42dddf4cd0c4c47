#include "storage/workspaces/workspace_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>
#include <utility>

#include "base/files.h"
#include "base/sha256.h"
#include "storage/state.h"
#include "storage/workspaces/disk_image.h"
#include "storage/workspaces/disk_room.h"
#include "storage/workspaces/stand_in.h"

namespace carrel::storage {

namespace {

constexpr std::size_t kMaxChanges = 1U << 30;

// CRITICAL: what a workload makes can have any mode, set-id bits too: nobody else has a way to it.
Result<UniqueFd> open_private(int dir, const std::string& name, mode_t mode = 0700) {
  if (::mkdirat(dir, name.c_str(), mode) != 0 && errno != EEXIST) {
    return system_error("make '" + name + "'");
  }
  return open_at(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// A directory that the workload writes to. As root it belongs to an id of the workspaces' own.
Status make_owned(int dir, const char* name) {
  if (::mkdirat(dir, name, 0755) != 0) {
    return errno == EEXIST ? Status{} : Status{system_error("make a workspace")};
  }
  if (::geteuid() == 0 && ::fchownat(dir, name, kWorkspaceId, kWorkspaceId, 0) != 0) {
    return system_error("give a workspace to its user");
  }
  return {};
}

bool is_locked(int dir, const std::string& name) {
  const UniqueFd fd(::openat(dir, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  return fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

Status lock_whole(int fd, int how, const std::string& what) {
  while (::flock(fd, how) != 0) {
    if (errno == EWOULDBLOCK) {
      return Error{Code::kConflict, 0, what, {}};
    }
    if (errno != EINTR) {
      return system_error("lock a workspace");
    }
  }
  return {};
}

// A lock on a directory of the store that ends with its scope.
class Held {
 public:
  static Result<Held> take(int fd, int how) {
    CARREL_TRY(lock_whole(fd, how, "somebody else is at work"));
    return Held(fd);
  }
  Held(Held&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Held& operator=(Held&&) = delete;
  ~Held() {
    if (fd_ >= 0) {
      ::flock(fd_, LOCK_UN);
    }
  }

 private:
  explicit Held(int fd) : fd_(fd) {}
  int fd_;
};

Error no_such_workspace(const std::string& name) {
  return Error{Code::kNotFound, 0, "Workspace " + name + " not found", "see 'carrel workspace ls'"};
}

Error no_such_snapshot(const std::string& named) {
  return Error{Code::kNotFound, 0, "Snapshot " + named + " not found",
               "see 'carrel workspace history'"};
}

// The one that a word means: a whole id before a name, and a name before the beginning of an id.
Result<SnapshotRow> choose_snapshot(const std::vector<SnapshotRow>& rows,
                                    const std::string& named) {
  std::vector<const SnapshotRow*> found;
  int best = 0;
  for (const SnapshotRow& row : rows) {
    const int fits = named.empty()               ? 0
                     : row.id == named           ? 3
                     : row.name == named         ? 2
                     : row.id.starts_with(named) ? 1
                                                 : 0;
    if (fits > best) {
      found.clear();
      best = fits;
    }
    if (fits > 0 && fits == best) {
      found.push_back(&row);
    }
  }
  if (found.empty()) {
    return no_such_snapshot(named);
  }
  if (found.size() > 1) {
    return Error{Code::kInvalid, 0, "more than one snapshot is called '" + named + "'",
                 "give the whole id"};
  }
  return *found.front();
}

Error not_mounted(const WorkspaceRow& row, Error error) {
  error.message = "open the workspace '" + row.name + "': " + error.message;
  if (error.hint.empty()) {
    error.hint = "it has a file system of its own, for which root needs ext4 and loop devices";
  }
  return error;
}

}  // namespace

Result<WorkspaceStore> WorkspaceStore::open(const Home& home) {
  CARREL_ASSIGN(WorkspaceRecords records, WorkspaceRecords::open(home));
  WorkspaceStore store(home, std::move(records));
  CARREL_ASSIGN(store.workspaces_, open_private(home.directory(), "workspaces"));
  CARREL_ASSIGN(store.layers_, open_private(home.directory(), "layers"));
  return store;
}

Result<WorkspaceRow> WorkspaceStore::find(const std::string& name) {
  CARREL_ASSIGN(const std::optional<WorkspaceRow> row, records_.find(name));
  if (!row.has_value()) {
    return no_such_workspace(name);
  }
  return *row;
}

// It is made under another name, which nobody sweeps away as long as it is open.
Status WorkspaceStore::make(const WorkspaceRow& row) {
  const std::string draft = "." + random_hex(16);
  UniqueFd place;
  {
    CARREL_ASSIGN(const Held held, Held::take(workspaces_.get(), LOCK_SH));
    CARREL_ASSIGN(place, open_place(draft));
    CARREL_TRY(lock_whole(place.get(), LOCK_EX | LOCK_NB, "a new workspace is in use"));
  }
  Status made;
  if (row.disk_bytes != 0) {
    auto top = make_disk(place.get(), row.disk_bytes);
    if (top.ok()) {
      opened_ = {row.name, std::move(top.value())};
      made = claim_room(*home_, place.get(), Claim::kPassing);
    } else if (top.error().code != Code::kUnsupported) {  // else its guest watches it
      made = top.error();
    }
  }
  CARREL_ASSIGN(const Held held, Held::take(workspaces_.get(), LOCK_EX));
  if (made.ok()) {
    made = adopt(draft, row);
  }
  if (!made.ok()) {
    opened_ = {};
    (void)remove_tree_at(workspaces_.get(), draft);
  }
  return made;
}

// Gives it its name and its row.
Status WorkspaceStore::adopt(const std::string& draft, const WorkspaceRow& row) {
  CARREL_ASSIGN(const std::optional<WorkspaceRow> taken, records_.find(row.name));
  if (taken.has_value()) {
    return Error{Code::kConflict, 0, "there is already a workspace '" + row.name + "'", {}};
  }
  // CRITICAL: what is left of one whose removal was interrupted is nobody's.
  CARREL_TRY(discard(row.name));
  if (::renameat(workspaces_.get(), draft.c_str(), workspaces_.get(), row.name.c_str()) != 0 ||
      ::fsync(workspaces_.get()) != 0) {
    return system_error("make the workspace '" + row.name + "'");
  }
  Status added = records_.add(row);
  if (!added.ok()) {
    (void)discard(row.name);
  }
  return added;
}

Result<WorkspaceRow> WorkspaceStore::ensure(const WorkspaceRow& wanted) {
  CARREL_ASSIGN(const std::optional<WorkspaceRow> known, records_.find(wanted.name));
  if (known.has_value()) {
    return *known;
  }
  if (Status made = make(wanted); !made.ok() && made.error().code != Code::kConflict) {
    return made.error();
  }
  CARREL_ASSIGN(const WorkspaceRow row, find(wanted.name));
  CARREL_TRY(open_directory(row));
  return row;
}

Result<UniqueFd> WorkspaceStore::open_place(const std::string& name) {
  // As root, whoever makes a fork's overlay has an id in it that is not root's.
  return open_private(workspaces_.get(), name, 0711);
}

Result<UniqueFd> WorkspaceStore::mount(const WorkspaceRow& row) {
  CARREL_ASSIGN(const UniqueFd place, open_place(row.name));
  if (!has_disk(place.get())) {
    return UniqueFd();
  }
  if (row.form == TreeForm::kUpper) {
    CARREL_TRY(open_private(place.get(), "stage"));
    CARREL_TRY(open_private(place.get(), "mount"));
  }
  auto mount = mount_with_room(*home_, place.get(), Claim::kLasting);
  return mount.ok() ? std::move(mount) : Result<UniqueFd>(not_mounted(row, mount.error()));
}

Result<UniqueFd> WorkspaceStore::open_directory(const WorkspaceRow& row) {
  CARREL_ASSIGN(UniqueFd directory, open_place(row.name));
  if (has_disk(directory.get())) {
    if (opened_.name != row.name) {
      auto mount = mount_with_room(*home_, directory.get(), Claim::kPassing);
      if (!mount.ok()) {
        return not_mounted(row, mount.error());
      }
      CARREL_ASSIGN(opened_.top, open_at(mount->get(), ".", O_RDONLY | O_DIRECTORY));
      opened_.name = row.name;
    }
    CARREL_ASSIGN(directory, open_at(opened_.top.get(), ".", O_RDONLY | O_DIRECTORY));
  }
  CARREL_TRY(open_private(directory.get(), "stage"));
  CARREL_TRY(make_owned(directory.get(), "tree"));
  if (row.form == TreeForm::kUpper) {
    CARREL_TRY(make_owned(directory.get(), "work"));
  }
  return directory;
}

Result<UniqueFd> WorkspaceStore::open_tree(const WorkspaceRow& row) {
  if (is_shown(row.name)) {
    return open_at(shown_.top.get(), ".", O_RDONLY | O_DIRECTORY);
  }
  CARREL_ASSIGN(const UniqueFd directory, open_directory(row));
  return open_at(directory.get(), "tree", O_RDONLY | O_DIRECTORY);
}

Result<UniqueFd> WorkspaceStore::lock(const WorkspaceRow& row) {
  CARREL_ASSIGN(const UniqueFd directory, open_place(row.name));
  CARREL_ASSIGN(UniqueFd file,
                open_at(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  CARREL_TRY(lock_whole(file.get(), LOCK_EX, ""));
  return file;
}

Result<UniqueFd> WorkspaceStore::use(const WorkspaceRow& row, Sharing sharing) {
  CARREL_ASSIGN(const UniqueFd directory, open_place(row.name));
  CARREL_ASSIGN(UniqueFd file,
                open_at(directory.get(), "use", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  const int how = (sharing == Sharing::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB;
  const std::string taken = "the workspace '" + row.name + "' is in use";
  Status locked = lock_whole(file.get(), how, taken);
  // Somebody may just be asking who has it.
  for (int round = 0; round < 10 && !locked.ok() && locked.error().code == Code::kConflict;
       ++round) {
    ::usleep(10'000);
    locked = lock_whole(file.get(), how, taken);
  }
  CARREL_TRY(std::move(locked));
  return file;
}

bool WorkspaceStore::is_used(const WorkspaceRow& row) {
  const auto directory = open_place(row.name);
  const UniqueFd file(
      directory.ok() ? ::openat(directory.value().get(), "use", O_RDONLY | O_NOFOLLOW | O_CLOEXEC)
                     : -1);
  // Others who ask have it for some microseconds, one who runs in it for longer.
  for (int round = 0; file.valid() && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; ++round) {
    if (errno != EWOULDBLOCK || round == 3) {
      return true;
    }
    ::usleep(200);
  }
  return false;
}

Result<SnapshotRow> WorkspaceStore::snapshot(const std::string& id) {
  CARREL_ASSIGN(std::optional<SnapshotRow> row, records_.snapshot(id));
  if (!row.has_value()) {
    return no_such_snapshot(id);
  }
  return *std::move(row);
}

Result<SnapshotRow> WorkspaceStore::find_snapshot(const WorkspaceRow& workspace,
                                                  const std::string& named) {
  CARREL_ASSIGN(std::vector<SnapshotRow> rows, records_.snapshots(workspace.name));
  for (const std::string& id : {workspace.base, workspace.head}) {
    const bool listed =
        std::any_of(rows.begin(), rows.end(), [&](const SnapshotRow& row) { return row.id == id; });
    CARREL_ASSIGN(std::optional<SnapshotRow> row, records_.snapshot(id));
    if (!listed && row.has_value()) {
      row->name.clear();  // its workspace may have another of that name
      rows.push_back(*std::move(row));
    }
  }
  CARREL_ASSIGN(const SnapshotRow found, choose_snapshot(rows, named));
  return snapshot(found.id);
}

Result<SnapshotRow> WorkspaceStore::find_snapshot_anywhere(const std::string& named) {
  CARREL_ASSIGN(const std::vector<SnapshotRow> rows, records_.snapshots(""));
  return choose_snapshot(rows, named);
}

Result<WorkspaceStore::Draft> WorkspaceStore::make_layer() {
  Draft draft;
  draft.id = random_hex(24);
  CARREL_ASSIGN(const Held held, Held::take(layers_.get(), LOCK_SH));
  CARREL_ASSIGN(draft.directory, open_private(layers_.get(), draft.id));
  CARREL_TRY(lock_whole(draft.directory.get(), LOCK_EX | LOCK_NB, "a new layer is in use"));
  if (::mkdirat(draft.directory.get(), "tree", 0755) != 0) {
    return system_error("make a layer");
  }
  CARREL_ASSIGN(draft.tree, open_at(draft.directory.get(), "tree", O_RDONLY | O_DIRECTORY));
  return draft;
}

Result<LayerRef> WorkspaceStore::finish_layer(const Draft& draft,
                                              const std::vector<TreeEntry>& changes,
                                              LayerFiles& files) {
  const std::string text = changes_to_text(changes);
  CARREL_TRY(files.sync_contents());
  CARREL_ASSIGN(const UniqueFd list, open_at(draft.directory.get(), "changes",
                                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0400));
  CARREL_TRY(write_all(list.get(), text));
  for (const int fd : {list.get(), draft.tree.get(), draft.directory.get()}) {
    struct stat info{};
    if (::fstat(fd, &info) != 0) {
      return system_error("look at a layer");
    }
    files.count(static_cast<std::uint64_t>(info.st_blocks) * 512);
  }
  CARREL_TRY(files.sync(list.get(), {draft.directory.get(), layers_.get()}));
  return LayerRef{draft.id, sha256(text), files.taken()};
}

void WorkspaceStore::drop_layer(const Draft& draft) {
  (void)remove_tree_at(layers_.get(), draft.id);
}

Result<UniqueFd> WorkspaceStore::open_layer(const std::string& id) {
  return open_at(layers_.get(), id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::vector<TreeEntry>> WorkspaceStore::read_changes(const LayerRef& layer) {
  CARREL_ASSIGN(const UniqueFd directory, open_layer(layer.id));
  CARREL_ASSIGN(const std::string text, read_file_at(directory.get(), "changes", kMaxChanges));
  if (sha256(text) != layer.digest) {
    return Error{Code::kInvalid, 0, "the layer " + layer.id + " is damaged: its list has changed",
                 "see 'carrel workspace fsck'"};
  }
  return changes_from_text(text);
}

Result<Tree> WorkspaceStore::read_tree(const std::vector<LayerRef>& layers) {
  Tree tree;
  for (const LayerRef& layer : layers) {
    CARREL_ASSIGN(const std::vector<TreeEntry> changes, read_changes(layer));
    apply_changes(tree, changes, layer.id);
  }
  return tree;
}

// Out of the way at once, and then removed.
Status WorkspaceStore::discard(const std::string& name) {
  const std::string gone = "." + random_hex(16);
  if (::renameat(workspaces_.get(), name.c_str(), workspaces_.get(), gone.c_str()) != 0) {
    return errno == ENOENT ? Status{} : Status{system_error("remove the workspace '" + name + "'")};
  }
  return remove_tree_at(workspaces_.get(), gone);
}

Status WorkspaceStore::clear_stage(const UniqueFd& directory) {
  CARREL_ASSIGN(const UniqueFd stage, open_at(directory.get(), "stage", O_RDONLY | O_DIRECTORY));
  CARREL_ASSIGN(const std::vector<std::string> names, list_directory(stage.get()));
  for (const std::string& name : names) {
    CARREL_TRY(remove_tree_at(stage.get(), name));
  }
  return {};
}

// What somebody who was killed left beside a tree, unless somebody else is at work there.
Status WorkspaceStore::sweep_workspace(const WorkspaceRow& row) {
  CARREL_ASSIGN(const UniqueFd place, open_place(row.name));
  if (has_disk(place.get())) {
    return {};  // whoever uses it next sees to that: to mount them all would take long
  }
  CARREL_ASSIGN(const UniqueFd directory, open_directory(row));
  CARREL_ASSIGN(const UniqueFd file,
                open_at(directory.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return {};
  }
  ::unlinkat(directory.get(), "index.new", 0);
  CARREL_TRY(clear_stage(directory));
  if (stands_for(*this, row.name).has_value()) {
    return {};
  }
  // As it is under the lock. Of a sandbox that never had a snapshot nothing is left.
  CARREL_ASSIGN(const WorkspaceRow now, find(row.name));
  const bool was = ::faccessat(place.get(), "box", F_OK, 0) == 0;
  if (was && now.head.empty() && now.restoring.empty()) {
    CARREL_TRY(records_.remove(row.name));
    return discard(row.name);
  }
  return settle_stand_in(*this, now);
}

// The layers without a row that nobody is making.
Result<std::vector<std::string>> WorkspaceStore::lost_layers() {
  CARREL_ASSIGN(const std::vector<std::string> all, list_directory(layers_.get()));
  // Whoever makes a layer holds it until it has its row, so these have theirs or never will.
  std::vector<std::string> lost;
  std::copy_if(all.begin(), all.end(), std::back_inserter(lost),
               [&](const std::string& id) { return !is_locked(layers_.get(), id); });
  CARREL_ASSIGN(const std::vector<LayerRef> named, records_.layers());
  std::set<std::string> needed;
  for (const LayerRef& layer : named) {
    needed.insert(layer.id);
  }
  std::erase_if(lost, [&](const std::string& id) { return needed.contains(id); });
  return lost;
}

Status WorkspaceStore::sweep_layers() {
  CARREL_ASSIGN(const Held held, Held::take(layers_.get(), LOCK_EX));
  CARREL_ASSIGN(const std::vector<std::string> before, lost_layers());
  if (before.empty()) {
    return {};
  }
  // CRITICAL: their rows could be in a commit that is not seen yet, and come back without them. One
  // that is lost only afterwards can be in a commit that came after this.
  CARREL_TRY(records_.database().drop_unseen_commit());
  CARREL_ASSIGN(const std::vector<std::string> lost, lost_layers());
  for (const std::string& id : lost) {
    if (std::find(before.begin(), before.end(), id) != before.end()) {
      CARREL_TRY(remove_tree_at(layers_.get(), id));
    }
  }
  return records_.forget_sizes();
}

Status WorkspaceStore::sweep() {
  CARREL_TRY(sweep_layers());
  CARREL_ASSIGN(const Held held, Held::take(workspaces_.get(), LOCK_EX));
  CARREL_ASSIGN(const std::vector<std::string> workspaces, list_directory(workspaces_.get()));
  for (const std::string& name : workspaces) {
    CARREL_ASSIGN(std::optional<WorkspaceRow> row, records_.find(name));
    if (!row.has_value() && !is_locked(workspaces_.get(), name)) {  // else it is about to be one
      CARREL_TRY(records_.database().drop_unseen_commit());
      CARREL_ASSIGN(row, records_.find(name));
      if (!row.has_value()) {
        CARREL_TRY(remove_tree_at(workspaces_.get(), name));
      }
    }
    if (row.has_value()) {
      CARREL_TRY(sweep_workspace(*row));
    }
  }
  return {};
}

Status WorkspaceStore::remove(const std::string& name) {
  {
    CARREL_ASSIGN(const Held held, Held::take(workspaces_.get(), LOCK_EX));
    CARREL_TRY(records_.remove(name));
    opened_ = {};
    CARREL_TRY(discard(name));
  }
  return sweep();
}

}  // namespace carrel::storage
