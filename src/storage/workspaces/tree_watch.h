#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/unique_fd.h"

namespace carrel::storage {

// What the kernel tells of the directories of a tree since they were looked at, by inotify: a
// directory of which it tells nothing has what it had, down to the contents of its files. Three
// things could change a file without being told, and none of them is left to chance: a mapping, so
// whoever may have one is looked for (Writers::take_watch); a further name of the file, so a tree
// that has or had one is no evidence; and another host, so the file system has to be this one's
// own. The descriptor can be kept by another process between two walks. A cache: without it every
// file is looked at.
class TreeWatch {
 public:
  // Of a tree that nothing is known of yet. Nothing where the host has no room for it, or the file
  // system is not one that tells everything.
  static std::optional<TreeWatch> begin(int tree);
  // One that was kept, with what has happened since. Nothing if it says too little.
  static std::optional<TreeWatch> resume(UniqueFd events);
  TreeWatch(TreeWatch&& other) noexcept;
  TreeWatch(const TreeWatch&) = delete;
  TreeWatch& operator=(const TreeWatch&) = delete;
  TreeWatch& operator=(TreeWatch&&) = delete;
  ~TreeWatch() = default;

  // For a walk, in any of its threads.

  // Whether the directory of that inode number is as it was when it was added.
  [[nodiscard]] bool is_quiet(std::uint64_t inode) const { return quiet_.contains(inode); }
  // Before anything in the directory is looked at.
  void add(int directory);
  // A file with several names was met: what is told of it is told at one of them.
  void give_up() { good_ = false; }

  // Whether it is still evidence, of everything that was looked at.
  [[nodiscard]] bool is_good() const { return good_; }
  // Nothing at all was told since it was kept.
  [[nodiscard]] bool is_silent() const { return silent_; }
  // Some directories were taken for what they were.
  [[nodiscard]] bool knows() const { return !quiet_.empty(); }
  UniqueFd release() { return std::move(events_); }

  // The device of the file system that such a descriptor watches, as mappings name it.
  static std::optional<dev_t> device_of(int events);

 private:
  explicit TreeWatch(UniqueFd events) : events_(std::move(events)) {}
  bool hear();

  UniqueFd events_;
  std::atomic<bool> good_ = true;
  std::atomic<std::size_t> added_ = 0;
  bool silent_ = false;
  std::unordered_set<std::uint64_t> quiet_;  // inode numbers
};

// A watch, and what the tree was when it began to be silent.
struct KeptWatch {
  std::string snapshot;
  std::int64_t index_ns = 0;  // when the walk began that made the index
  UniqueFd events;
};

}  // namespace carrel::storage
