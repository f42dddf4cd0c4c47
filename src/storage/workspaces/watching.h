#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "storage/workspaces/snapshot.h"
#include "storage/workspaces/tree_index.h"
#include "storage/workspaces/tree_watch.h"

namespace carrel::storage {

// The watch over the tree of a workspace, from the moment on at which its writers stand still until
// they keep it again.
class Watching {
 public:
  enum class Use { kNone, kPossible };
  Watching(Writers& writers, int tree, Use use);

  [[nodiscard]] bool is_possible() const { return use_ == Use::kPossible; }
  // The writers stand still now: asks for what they have kept.
  void ask();
  // Whether the tree is what that snapshot says, because nothing was told since. Then the watch is
  // kept on.
  bool keep_if_still(const std::string& snapshot);
  // For a walk that is compared with that index; null: none is to be had.
  TreeWatch* for_walk(const TreeIndex& index);
  // The tree is what that snapshot and the index of that time say.
  void keep(const std::string& snapshot, std::int64_t index_ns);

 private:
  Writers& writers_;
  int tree_;
  Use use_;
  bool asked_ = false;
  KeptWatch kept_;  // what the watch began with; its descriptor is the watch's
  std::optional<TreeWatch> watch_;
};

}  // namespace carrel::storage
