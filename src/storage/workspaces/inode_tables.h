#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/unique_fd.h"

namespace carrel::storage {

// The inodes of a workspace's own ext4 file system, read from its device. The kernel's memory of
// the device is where ext4 has them: a size, a mode or a time that changes is there at once,
// whether or not it is on the disk, so nothing has to be synced first. Sixteen of them cost one
// call, where a look at each name costs sixteen.
class InodeTables {
 public:
  // `tree` is a directory of a file system that disk_image.h made. Nothing where its device cannot
  // be read, or something in it is not as it was made.
  static std::optional<InodeTables> open(int tree);

  // Reads one after the other, quickly if they are neighbours. One for each thread.
  class Reader {
   public:
    explicit Reader(const InodeTables& tables) : tables_(&tables) {}
    // Type, mode, size, number of names and times of an inode; nothing where it has no name, or is
    // none.
    std::optional<struct stat> look(std::uint64_t inode);

   private:
    static constexpr std::size_t kBlock = 4096;
    const InodeTables* tables_;
    std::uint64_t block_ = 0;  // what `data_` is; 0: nothing
    alignas(8) std::array<char, kBlock> data_;
  };

 private:
  UniqueFd device_;
  std::uint32_t inodes_in_group_ = 0;
  std::vector<std::uint32_t> tables_;  // the first block of each group's
};

}  // namespace carrel::storage
