#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/tree_scan.h"

namespace carrel::storage {

// A directory on a walk, and what was found in it.
struct WalkedDirectory {
  // One entry: records of the index that are as they were, one that is described, or a directory.
  struct Part {
    enum class Kind { kSame, kEntry, kDirectory } kind = Kind::kSame;
    std::uint32_t first = 0;  // a record, or a place in `entries` or `directories`
    std::uint32_t last = 0;
  };

  std::string path;
  std::size_t depth = 0;
  std::optional<std::uint32_t> record;  // the directory that the index has of this path
  bool certain = false;                 // and it is as it was
  bool quiet = false;                   // and so are its files
  bool elsewhere = false;               // something else is mounted there
  ScannedEntry self;
  std::vector<Part> parts;  // in order
  std::vector<ScannedEntry> entries;
  std::vector<WalkedDirectory> directories;  // they stay where they are once all of them are here
};

// Looks at every directory below a top, each in whichever thread is free.
class TreeWalk {
 public:
  TreeWalk(int root, dev_t device, TreeForm form, const ScanOptions& options)
      : root_(root), device_(device), form_(form), options_(options) {}

  // Fills in what is in `top` and below it.
  Status run(WalkedDirectory& top);

 private:
  void work();
  Status look_into(WalkedDirectory& directory);
  Status list(int fd, WalkedDirectory& directory);
  Status look_again(int fd, WalkedDirectory& directory);
  Status trust(WalkedDirectory& directory);
  [[nodiscard]] bool is_quiet(std::uint32_t record) const;
  // The record that the index has of this name, if any.
  Status look_at(int fd, WalkedDirectory& in, const char* name,
                 std::optional<std::uint32_t> record);
  bool is_same(InodeTables::Reader& inodes, std::uint32_t record) const;
  Status count(const WalkedDirectory& in, const char* name);
  static WalkedDirectory& enter(WalkedDirectory& in, const char* name,
                                std::optional<std::uint32_t> record);
  Status add(int fd, WalkedDirectory& in, const char* name, ScannedEntry found);
  void write_back(int fd, const char* name);

  int root_;
  dev_t device_;
  TreeForm form_;
  const ScanOptions& options_;
  std::atomic<std::uint64_t> seen_{0};
  std::atomic<std::uint64_t> sent_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WalkedDirectory*> waiting_;
  std::size_t busy_ = 0;
  Status failure_;
};

}  // namespace carrel::storage
