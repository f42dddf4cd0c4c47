#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::storage {

// What was made for a layer and is not on disk yet. How little has to be waited for depends on the
// file system.
class LayerFiles {
 public:
  LayerFiles() = default;
  // `in` is any directory on that file system.
  explicit LayerFiles(int in);

  void add_directory(UniqueFd fd);
  // A file whose contents were written.
  void add_copied(UniqueFd fd);
  // A file that shares its contents with another.
  void add_shared(UniqueFd fd);

  // Some of it takes so much of the disk, on disk or not yet.
  void count(std::uint64_t bytes) { taken_ += bytes; }
  [[nodiscard]] std::uint64_t taken() const { return taken_; }

  // Has the contents on disk, as far as they do not follow.
  Status sync_contents();
  // Then everything else, with the file that was written last and what was done to the directories
  // that all of it is in.
  Status sync(int last, std::initializer_list<int> above);

 private:
  enum class Kind { kExt4, kBtrfs, kOther };
  [[nodiscard]] bool are_many() const;

  Kind kind_ = Kind::kOther;
  std::uint64_t files_ = 0;
  std::uint64_t taken_ = 0;
  std::vector<UniqueFd> copied_;
  std::vector<UniqueFd> others_;
};

}  // namespace carrel::storage
