#include "storage/workspaces/compare.h"

#include <algorithm>
#include <map>
#include <utility>

namespace carrel::storage {

namespace {

// Empty files are all alike, and say nothing of where they came from.
bool can_be_renamed(const Difference& difference, Change change) {
  const std::optional<TreeNode>& node =
      change == Change::kAdded ? difference.after : difference.before;
  return difference.change == change && node->entry.kind == EntryKind::kFile &&
         node->entry.size > 0;
}

void find_renamed(std::vector<Difference>& all) {
  std::multimap<ContentHash, Difference*> gone;
  for (Difference& difference : all) {
    if (can_be_renamed(difference, Change::kDeleted)) {
      gone.emplace(difference.before->entry.hash, &difference);
    }
  }
  for (Difference& difference : all) {
    if (!can_be_renamed(difference, Change::kAdded)) {
      continue;
    }
    const auto match = gone.find(difference.after->entry.hash);
    if (match == gone.end()) {
      continue;
    }
    difference.change = Change::kRenamed;
    difference.from = match->second->path;
    difference.before = std::move(match->second->before);
    match->second->path.clear();
    gone.erase(match);
  }
  std::erase_if(all, [](const Difference& difference) { return difference.path.empty(); });
}

}  // namespace

std::vector<Difference> compare_trees(const Tree& before, const Tree& after) {
  std::vector<Difference> all;
  auto old = before.begin();
  auto now = after.begin();
  while (old != before.end() || now != after.end()) {
    Difference difference;
    if (now == after.end() || (old != before.end() && comes_before(old->first, now->first))) {
      difference.change = Change::kDeleted;
      difference.path = old->first;
      difference.before = old->second;
      ++old;
    } else if (old == before.end() || comes_before(now->first, old->first)) {
      difference.change = Change::kAdded;
      difference.path = now->first;
      difference.after = now->second;
      ++now;
    } else {
      if (!same_contents(old->second.entry, now->second.entry)) {
        difference.path = now->first;
        difference.before = old->second;
        difference.after = now->second;
      }
      ++old;
      ++now;
    }
    if (!difference.path.empty()) {
      all.push_back(std::move(difference));
    }
  }
  find_renamed(all);
  return all;
}

}  // namespace carrel::storage
