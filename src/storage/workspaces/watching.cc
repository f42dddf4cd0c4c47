#include "storage/workspaces/watching.h"

#include <utility>

namespace carrel::storage {

Watching::Watching(Writers& writers, int tree, Use use)
    : writers_(writers), tree_(tree), use_(writers.keep_watches() ? use : Use::kNone) {}

void Watching::ask() {
  if (use_ == Use::kNone || std::exchange(asked_, true)) {
    return;
  }
  if (auto kept = writers_.take_watch(); kept.has_value()) {
    kept_ = std::move(*kept);
    if (auto watch = TreeWatch::resume(std::move(kept_.events)); watch.has_value()) {
      watch_.emplace(std::move(*watch));
    }
  }
}

bool Watching::keep_if_still(const std::string& snapshot) {
  const bool still =
      watch_.has_value() && watch_->is_silent() && !snapshot.empty() && kept_.snapshot == snapshot;
  if (still) {
    keep(kept_.snapshot, kept_.index_ns);
  }
  return still;
}

TreeWatch* Watching::for_walk(const TreeIndex& index) {
  if (use_ == Use::kNone) {
    return nullptr;
  }
  // CRITICAL: what happened before the index was made is not told any more.
  if (watch_.has_value() &&
      (index.snapshot() != kept_.snapshot || index.began_ns() != kept_.index_ns)) {
    watch_.reset();
  }
  if (!watch_.has_value()) {
    if (auto begun = TreeWatch::begin(tree_); begun.has_value()) {
      watch_.emplace(std::move(*begun));
    }
  }
  return watch_.has_value() ? &*watch_ : nullptr;
}

void Watching::keep(const std::string& snapshot, std::int64_t index_ns) {
  if (watch_.has_value() && watch_->is_good()) {
    writers_.keep_watch({snapshot, index_ns, watch_->release()});
  }
  watch_.reset();
}

}  // namespace carrel::storage
