#pragma once

#include <functional>
#include <string>

#include "base/result.h"
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
};

// Takes a snapshot of a workspace and returns it: what it says is on disk. The writers stand still
// while the tree is read and not longer.
Result<SnapshotRow> take_snapshot(WorkspaceStore& store, const WorkspaceRow& workspace,
                                  const SnapshotOptions& options, Writers& writers);

}  // namespace carrel::storage
