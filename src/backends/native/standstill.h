#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/box.h"
#include "storage/home.h"
#include "storage/workspaces/snapshot.h"

namespace carrel::native {

// The workloads of long-lived sandboxes, to be made to stand still: by their control groups or,
// where there are none, by their guests. They go on when it is told, and also when this process
// ends in any way.
class BoxWriters : public storage::Writers {
 public:
  // Whether the keeper has a watch over their workspace between two snapshots.
  enum class Watched { kNo, kYes };
  BoxWriters(const storage::Home& home, std::vector<storage::BoxRecord> boxes, Watched watched);
  ~BoxWriters() override;
  Status freeze() override;
  void thaw() override;
  [[nodiscard]] bool keep_watches() const override { return watched_ == Watched::kYes; }
  std::optional<storage::KeptWatch> take_watch() override;
  void keep_watch(storage::KeptWatch watch) override;

 private:
  class Box;
  const storage::Home* home_;
  std::vector<storage::BoxRecord> records_;
  Watched watched_;
  std::vector<std::unique_ptr<Box>> frozen_;
};

}  // namespace carrel::native
