#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "storage/workspaces/tree_watch.h"
#include "storage/workspaces/workspace_store.h"

namespace carrel::storage {

// Whoever writes to a workspace, and can be made to stand still.
class Writers {
 public:
  Writers() = default;
  Writers(const Writers&) = delete;
  Writers& operator=(const Writers&) = delete;
  virtual ~Writers() = default;
  virtual Status freeze() = 0;
  virtual void thaw() = 0;

  // Whether a watch over the tree can be kept for as long as they write to it.
  [[nodiscard]] virtual bool keep_watches() const { return false; }
  // The one that was kept last, if it is certain that none of them, who stand still, can change a
  // file of the tree's file system without its being told. It is given once.
  virtual std::optional<KeptWatch> take_watch() { return std::nullopt; }
  virtual void keep_watch(KeptWatch /*watch*/) {}
};

// Nobody writes.
class NoWriters : public Writers {
 public:
  Status freeze() override { return {}; }
  void thaw() override {}
};

// What happens when the tree is what the last snapshot of it is: there is one more, or that one
// does.
enum class Unchanged { kTakenAgain, kLastOne };

struct SnapshotOptions {
  std::string name = {};    // empty: none
  std::string holder = {};  // who holds it from the moment on at which it exists; empty: nobody
  Unchanged unchanged = Unchanged::kTakenAgain;
  SnapshotRow::Asked asked = SnapshotRow::Asked::kYes;
  std::uint64_t most = UINT64_MAX;  // that it may take of the disk, or it is kResource
};

// Takes a snapshot of a workspace and returns it: what it says is on disk. The writers stand still
// while the tree is read and not longer.
Result<SnapshotRow> take_snapshot(WorkspaceStore& store, const WorkspaceRow& workspace,
                                  const SnapshotOptions& options, Writers& writers);

}  // namespace carrel::storage
