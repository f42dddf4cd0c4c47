#include "backends/microvm/share_nodes.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace carrel::microvm {

namespace {

constexpr std::size_t kLongestPath = 4000;

int open_path(int folder, const std::string& path) {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  // CRITICAL: names come from a machine, and somebody else may change the tree meanwhile.
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
}

}  // namespace

FileKey ShareNodes::key_of(const struct statx& facts) const {
  const std::uint64_t device = std::uint64_t{facts.stx_dev_major} << 32 | facts.stx_dev_minor;
  return births_last_
             ? FileKey{device, facts.stx_ino, facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec}
             : FileKey{device, facts.stx_ino, 0, 0};
}

int look_at(int fd, struct statx& facts) {
  facts = {};
  return ::syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW,
                   STATX_BASIC_STATS | STATX_BTIME, &facts) == 0
             ? 0
             : errno;
}

ShareNodes::ShareNodes(UniqueFd top, std::size_t most) : top_(std::move(top)), most_(most) {
  Node root;
  struct statx facts{};
  struct statfs system{};
  births_last_ = ::fstatfs(top_.get(), &system) == 0 && system.f_type != OVERLAYFS_SUPER_MAGIC;
  (void)look_at(top_.get(), facts);
  root.key = key_of(facts);
  root.seen = 1;  // it is never forgotten
  numbers_[root.key] = kRoot;
  nodes_.emplace(kRoot, std::move(root));
}

UniqueFd ShareNodes::open(std::uint64_t node, int& error) const {
  std::vector<const Node*> way;
  for (std::uint64_t at = node; at != kRoot;) {
    const auto found = nodes_.find(at);
    // No way is longer than there are files, or it is a circle that renames by others made.
    if (found == nodes_.end() || way.size() > nodes_.size()) {
      error = ESTALE;
      return {};
    }
    way.push_back(&found->second);
    at = found->second.parent;
  }
  UniqueFd here(::fcntl(top_.get(), F_DUPFD_CLOEXEC, 3));
  while (here.valid() && !way.empty()) {
    std::string path = way.back()->name;
    way.pop_back();
    while (!way.empty() && path.size() + 1 + way.back()->name.size() < kLongestPath) {
      path += "/" + way.back()->name;
      way.pop_back();
    }
    here.reset(open_path(here.get(), path));
  }
  struct statx facts{};
  error = here.valid() ? look_at(here.get(), facts) : errno;
  const auto found = nodes_.find(node);
  if (error == 0 && (found == nodes_.end() || key_of(facts) != found->second.key)) {
    error = ESTALE;
  }
  if (error != 0) {
    error = error == ENOENT || error == ELOOP || error == ENOTDIR ? ESTALE : error;
    return {};
  }
  return here;
}

void ShareNodes::place(Node& node, std::uint64_t parent, const std::string& name) {
  const std::uint64_t before = node.parent;
  if (const auto folder = nodes_.find(parent); folder != nodes_.end()) {
    ++folder->second.children;
  }
  node.parent = parent;
  node.name = name;
  if (const auto folder = nodes_.find(before); folder != nodes_.end()) {
    --folder->second.children;
    drop(before);
  }
}

std::uint64_t ShareNodes::see(std::uint64_t parent, const std::string& name, const FileKey& key) {
  if (const auto known = numbers_.find(key); known != numbers_.end()) {
    Node& node = nodes_.at(known->second);
    ++node.seen;
    if (known->second != kRoot && (node.parent != parent || node.name != name)) {
      place(node, parent, name);
    }
    return known->second;
  }
  if (nodes_.size() >= most_) {
    return 0;
  }
  const std::uint64_t number = next_++;
  Node& node = nodes_[number];
  node.key = key;
  node.seen = 1;
  numbers_[key] = number;
  place(node, parent, name);
  return number;
}

void ShareNodes::move(const FileKey& key, std::uint64_t parent, const std::string& name) {
  const auto known = numbers_.find(key);
  if (known != numbers_.end() && known->second != kRoot) {
    place(nodes_.at(known->second), parent, name);
  }
}

void ShareNodes::hide(std::uint64_t node) {
  if (const auto found = nodes_.find(node); found != nodes_.end()) {
    found->second.hidden = true;
  }
}

bool ShareNodes::hides(std::uint64_t node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.hidden;
}

std::size_t ShareNodes::hidden() const {
  return static_cast<std::size_t>(std::count_if(
      nodes_.begin(), nodes_.end(), [](const auto& node) { return node.second.hidden; }));
}

void ShareNodes::forget(std::uint64_t node, std::uint64_t times) {
  const auto found = nodes_.find(node);
  if (node == kRoot || found == nodes_.end()) {
    return;
  }
  found->second.seen -= std::min(found->second.seen, times);
  drop(node);
}

// Lets go of one that nobody knows and that nothing known is in, and of folders above that are so
// then.
void ShareNodes::drop(std::uint64_t number) {
  for (;;) {
    const auto found = nodes_.find(number);
    if (number == kRoot || found == nodes_.end() || found->second.seen > 0 ||
        found->second.children > 0) {
      return;
    }
    const std::uint64_t parent = found->second.parent;
    numbers_.erase(found->second.key);
    nodes_.erase(found);
    const auto folder = nodes_.find(parent);
    if (folder == nodes_.end()) {
      return;
    }
    --folder->second.children;
    number = parent;
  }
}

}  // namespace carrel::microvm
