#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "storage/workspaces/tree_entry.h"

namespace carrel::storage {

// One entry as an index has it, in memory and on disk.
struct IndexRecord {
  std::uint64_t inode = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  std::uint64_t size = 0;
  ContentHash hash{};
  std::uint64_t text = 0;  // where its path begins among the texts; then come target and attributes
  std::uint32_t end = 0;   // the number of the first record that is not below it
  std::uint32_t left_out = 0;
  std::uint16_t path_size = 0;
  std::uint16_t target_size = 0;
  std::uint16_t attributes_size = 0;
  std::uint16_t mode = 0;
  EntryKind kind = EntryKind::kFile;
  bool opaque = false;
  std::array<std::uint16_t, 3> unused{};
};

struct UnmapIndex {
  std::size_t size = 0;
  void operator()(char* data) const;
};

// What the tree of a workspace was when its last snapshot was taken, with the evidence for it. A
// cache: one that is missing, damaged or of another snapshot only costs time. Read where it lies,
// because it is as large as the tree and most of it is looked at once.
class TreeIndex {
 public:
  [[nodiscard]] const std::string& snapshot() const { return snapshot_; }  // its id
  void set_snapshot(std::string id) { snapshot_ = std::move(id); }
  [[nodiscard]] std::int64_t began_ns() const { return began_ns_; }  // the walk
  // Records are in the order of comes_before(); the first is the top. None: nothing is known.
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  const IndexRecord& operator[](std::size_t i) const { return records_[i]; }
  // With a NUL after it.
  [[nodiscard]] std::string_view path(std::size_t i) const {
    return {texts_.data() + records_[i].text, records_[i].path_size};
  }
  [[nodiscard]] std::string_view target(std::size_t i) const {
    return {texts_.data() + records_[i].text + records_[i].path_size + 1, records_[i].target_size};
  }
  [[nodiscard]] std::string_view attributes(std::size_t i) const {
    const IndexRecord& record = records_[i];
    return {texts_.data() + record.text + record.path_size + record.target_size + 2,
            record.attributes_size};
  }
  [[nodiscard]] ScannedEntry entry(std::size_t i) const;

 private:
  friend class IndexBuilder;
  friend TreeIndex read_index(int directory, const std::string& name, const std::string& snapshot);
  friend Status draft_index(int directory, const std::string& name, const TreeIndex& index);

  std::string snapshot_;
  std::int64_t began_ns_ = 0;
  std::span<const IndexRecord> records_;
  std::span<const char> texts_;
  // Where those are: in a file or in memory.
  std::unique_ptr<char, UnmapIndex> file_;
  std::vector<IndexRecord> own_records_;
  std::vector<char> own_texts_;
};

// Makes an index, from its top to its last record.
class IndexBuilder {
 public:
  explicit IndexBuilder(std::size_t expected) { records_.reserve(expected); }
  void add(const ScannedEntry& entry);
  // The same records that another has.
  void add(const TreeIndex& from, std::size_t first, std::size_t last);
  TreeIndex finish(std::int64_t began_ns);

 private:
  std::vector<IndexRecord> records_;
  std::vector<char> texts_;
};

// Whether what was `before` in a walk that began at `began_ns` is the same now, contents and all;
// of a directory, whether it has the same names. Clocks of file systems are coarse: what changed
// shortly before that walk may have changed again after it without another time.
bool is_certain(const IndexRecord& before, const ScannedEntry& now, std::int64_t began_ns);

// Whether a file or directory is certain to have the attributes that it had.
bool has_same_attributes(const IndexRecord& before, const ScannedEntry& now, std::int64_t began_ns);

// The index in the file `name` of a directory; empty when there is none that can be used.
TreeIndex read_index(int directory, const std::string& name, const std::string& snapshot);
// Writes it beside that file, to take its place with the second call. Not synced: see above.
Status draft_index(int directory, const std::string& name, const TreeIndex& index);
Status place_index(int directory, const std::string& name);

}  // namespace carrel::storage
