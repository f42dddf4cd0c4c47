#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/microvm/nbd.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace carrel::microvm {

// Folders and files of the host as a read-only file system on a block device (EROFS, without
// compression). Nothing is copied and nothing is walked ahead: the place of a folder's entries on
// the device is chosen when somebody reads what leads there, and contents are read from the files
// themselves. What a folder holds is looked at once; a file that changes is seen as it is then.
class Shelf final : public Blocks {
 public:
  static constexpr std::uint64_t kBlock = 4096;
  static constexpr std::uint64_t kBytes = 1ULL << 43;  // of the device; little of it is used

  Shelf();

  // Shows what `source` is, a folder or a file, at this absolute path. What was shown above it
  // shows it already. kInvalid: the path is not one.
  Status show(const std::string& path, UniqueFd source);
  // An empty folder, if nothing is there.
  Status make_folder(const std::string& path);

  // False: a file of the host's cannot be read.
  bool read(std::uint64_t offset, std::span<char> out) override;
  [[nodiscard]] std::uint64_t size() const override { return kBytes; }

 private:
  static constexpr std::uint32_t kNobody = ~0U;

  struct Node {
    std::uint32_t parent = kNobody;
    std::string name;
    int source = -1;      // of what is shown: its descriptor
    bool known = false;   // its facts are looked at
    bool listed = false;  // its entries are
    std::uint16_t mode = 0;
    std::uint32_t links = 1;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::uint64_t size = 0;
    std::int64_t changed = 0;
    std::uint64_t inode = 0;  // where on the device
    std::uint32_t data = 0;   // the first block of its contents
    std::vector<std::uint32_t> entries;
    std::vector<std::uint32_t> starts;  // folder: the first entry of each block of its contents
  };
  enum class Kind : std::uint8_t { kInodes, kFolder, kFile, kLink };
  struct Region {
    Kind kind{};
    std::uint32_t node = 0;
    std::uint64_t blocks = 0;
  };

  std::uint32_t add(std::uint32_t parent, std::string name, std::uint16_t mode);
  std::uint32_t find(std::uint32_t folder, const std::string& name) const;
  Result<std::uint32_t> make_way(const std::string& path);
  std::uint64_t place(Kind kind, std::uint32_t node, std::uint64_t bytes);
  [[nodiscard]] UniqueFd open(std::uint32_t node, int flags) const;
  // The facts of a node, so that its inode can be told.
  void look(std::uint32_t node);
  void list(std::uint32_t node);
  void lay_out(std::uint32_t node);
  [[nodiscard]] bool is_within(std::uint32_t node) const;

  bool read_block(std::uint64_t block, const Region* region, std::uint64_t index,
                  std::span<char> out);
  void write_super(std::span<char> out) const;
  void write_inodes(std::uint32_t folder, std::uint64_t index, std::span<char> out);
  void write_inode(std::uint32_t node, char* out);
  void write_entries(std::uint32_t folder, std::uint64_t index, std::span<char> out) const;
  bool read_file(std::uint32_t node, std::uint64_t index, std::span<char> out);
  bool read_link(std::uint32_t node, std::span<char> out) const;

  std::deque<Node> nodes_;
  std::vector<UniqueFd> sources_;
  std::map<std::uint64_t, Region> regions_;  // by their first block
  std::uint64_t next_block_ = 2;             // after the superblock and the root's inode
  std::map<std::uint32_t, UniqueFd> open_;   // files that were read last
  std::deque<std::uint32_t> open_order_;
};

}  // namespace carrel::microvm
