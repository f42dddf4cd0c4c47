#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/unique_fd.h"

struct statx;

namespace carrel::microvm {

// Which file it is, whatever its name: an inode that is used again has another time of birth.
struct FileKey {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t born_s = 0;
  std::uint32_t born_ns = 0;
  auto operator<=>(const FileKey&) const = default;
};
// The facts of what a descriptor is: 0 or an errno.
int look_at(int fd, struct statx& facts);

// What a machine knows of a tree: a number for each file that it has asked for, with the folder and
// the name where it was seen last. No descriptor is kept, so a large tree costs memory only, and
// what is opened is compared with what was seen: a name that leads elsewhere by now is ESTALE.
class ShareNodes {
 public:
  static constexpr std::uint64_t kRoot = 1;

  // `top` is a folder or a file, O_PATH. No more than `most` files are known at once.
  ShareNodes(UniqueFd top, std::size_t most);

  [[nodiscard]] int top() const { return top_.get(); }
  [[nodiscard]] FileKey key_of(const struct statx& facts) const;
  // Opens a file, O_PATH; not valid: `error` says why. No link is followed and the tree is not
  // left, whatever somebody else does to it meanwhile.
  UniqueFd open(std::uint64_t node, int& error) const;

  // The number of what was seen under that name, which the machine has to forget once more; 0:
  // there are too many.
  std::uint64_t see(std::uint64_t parent, const std::string& name, const FileKey& key);
  // A file has another name now, if it is known.
  void move(const FileKey& key, std::uint64_t parent, const std::string& name);
  void forget(std::uint64_t node, std::uint64_t times);
  // That a file is not to be used, as long as it is known.
  void hide(std::uint64_t node);
  [[nodiscard]] bool hides(std::uint64_t node) const;
  [[nodiscard]] std::size_t hidden() const;  // how many are
  [[nodiscard]] bool knows(std::uint64_t node) const { return nodes_.contains(node); }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    std::uint64_t parent = 0;
    std::string name;
    FileKey key;
    std::uint64_t seen = 0;  // and not forgotten
    std::uint64_t children = 0;
    bool hidden = false;
  };

  void place(Node& node, std::uint64_t parent, const std::string& name);
  void drop(std::uint64_t number);

  UniqueFd top_;
  std::size_t most_;
  bool births_last_ = true;  // a time of birth stays what it is, as it does not in overlays
  std::uint64_t next_ = kRoot + 1;
  std::unordered_map<std::uint64_t, Node> nodes_;
  std::map<FileKey, std::uint64_t> numbers_;
};

}  // namespace carrel::microvm
