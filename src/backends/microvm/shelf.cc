#include "backends/microvm/shelf.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>

namespace carrel::microvm {

namespace {

constexpr std::size_t kInodeBytes = 64;  // an extended one
constexpr std::size_t kInodesOfBlock = Shelf::kBlock / kInodeBytes;
constexpr std::size_t kSlot = 32;  // inodes are numbered by these
constexpr std::size_t kEntryBytes = 12;
constexpr std::size_t kSuperAt = 1024;
constexpr std::uint32_t kMagic = 0xE0F5E1E2;
constexpr std::size_t kMostOpen = 64;

// Little-endian fields.
template <typename Value>
void put(char* out, Value value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    out[i] = static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}

std::uint64_t blocks_of(std::uint64_t bytes) { return (bytes + Shelf::kBlock - 1) / Shelf::kBlock; }

char type_of(std::uint16_t mode) { return S_ISDIR(mode) ? 2 : (S_ISLNK(mode) ? 7 : 1); }

std::uint16_t mode_of(unsigned char type) {
  return type == DT_DIR ? S_IFDIR : (type == DT_LNK ? S_IFLNK : S_IFREG);
}

// The facts of what is shown are those of the host's; nothing there is a device or a socket.
bool is_shown(std::uint32_t mode) { return S_ISDIR(mode) || S_ISREG(mode) || S_ISLNK(mode); }

}  // namespace

Shelf::Shelf() {
  const std::uint32_t root = add(kNobody, {}, S_IFDIR);
  nodes_[root].inode = kBlock;
  nodes_[root].known = true;
  nodes_[root].mode = S_IFDIR | 0755;
}

std::uint32_t Shelf::add(std::uint32_t parent, std::string name, std::uint16_t mode) {
  const auto number = static_cast<std::uint32_t>(nodes_.size());
  Node node;
  node.parent = parent;
  node.name = std::move(name);
  node.mode = mode;
  nodes_.push_back(std::move(node));
  if (parent != kNobody) {
    nodes_[parent].entries.push_back(number);
  }
  return number;
}

std::uint32_t Shelf::find(std::uint32_t folder, const std::string& name) const {
  for (const std::uint32_t entry : nodes_[folder].entries) {
    if (nodes_[entry].name == name) {
      return entry;
    }
  }
  return kNobody;
}

// The folders that lead to a path, made where they are missing; kNobody: something is shown above.
Result<std::uint32_t> Shelf::make_way(const std::string& path) {
  if (path.size() < 2 || path[0] != '/' || path.back() == '/') {
    return Error{Code::kInvalid, 0, "'" + path + "' is no path that can be shown", {}};
  }
  std::uint32_t at = 0;
  for (std::size_t start = 1; start < path.size();) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string name = path.substr(start, end - start);
    if (name.empty() || name == "." || name == ".." || name.size() > NAME_MAX) {
      return Error{Code::kInvalid, 0, "'" + path + "' is no path that can be shown", {}};
    }
    std::uint32_t next = find(at, name);
    if (next == kNobody) {
      next = add(at, name, S_IFDIR | 0755);
      nodes_[next].known = true;
    } else if (nodes_[next].source >= 0) {
      return kNobody;
    }
    at = next;
    start = end + 1;
  }
  return at;
}

Status Shelf::make_folder(const std::string& path) {
  CARREL_ASSIGN(const std::uint32_t made, make_way(path));
  (void)made;
  return {};
}

Status Shelf::show(const std::string& path, UniqueFd source) {
  CARREL_ASSIGN(const std::uint32_t number, make_way(path));
  if (number == kNobody) {
    return {};
  }
  struct stat info{};
  if (::fstat(source.get(), &info) != 0) {
    return system_error("look at '" + path + "'");
  }
  if (!is_shown(info.st_mode)) {
    return Error{Code::kUnsupported, 0, "'" + path + "' is neither a folder nor a file", {}};
  }
  Node& node = nodes_[number];
  node.entries.clear();
  node.known = false;
  node.mode = static_cast<std::uint16_t>(info.st_mode & S_IFMT);
  node.source = source.get();
  sources_.push_back(std::move(source));
  return {};
}

bool Shelf::is_within(std::uint32_t node) const {
  for (; node != kNobody; node = nodes_[node].parent) {
    if (nodes_[node].source >= 0) {
      return true;
    }
  }
  return false;
}

// CRITICAL: below what is shown no link is followed, and nothing above it can be named.
UniqueFd Shelf::open(std::uint32_t node, int flags) const {
  std::string path;
  while (nodes_[node].source < 0) {
    path = path.empty() ? nodes_[node].name : nodes_[node].name + "/" + path;
    node = nodes_[node].parent;
  }
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC | O_NOFOLLOW);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  if (path.empty()) {
    if ((flags & O_DIRECTORY) != 0) {
      path = ".";
    } else if ((flags & O_PATH) != 0) {
      return UniqueFd(::fcntl(nodes_[node].source, F_DUPFD_CLOEXEC, 0));
    } else {
      // A file that is shown by itself was opened for reading.
      return UniqueFd(::fcntl(nodes_[node].source, F_DUPFD_CLOEXEC, 0));
    }
  }
  return UniqueFd(static_cast<int>(
      ::syscall(SYS_openat2, nodes_[node].source, path.c_str(), &how, sizeof how)));
}

std::uint64_t Shelf::place(Kind kind, std::uint32_t node, std::uint64_t bytes) {
  const std::uint64_t blocks = std::max<std::uint64_t>(1, blocks_of(bytes));
  if (blocks > kBytes / kBlock - next_block_) {
    return 0;  // a file that is larger than the device is empty
  }
  const std::uint64_t first = next_block_;
  regions_[first] = {kind, node, blocks};
  next_block_ += blocks;
  return first;
}

void Shelf::look(std::uint32_t number) {
  Node& node = nodes_[number];
  if (!node.known) {
    node.known = true;
    const UniqueFd self = open(number, O_PATH);
    struct stat info{};
    if (!self.valid() || ::fstat(self.get(), &info) != 0 ||
        (info.st_mode & S_IFMT) != (node.mode & S_IFMT)) {
      info = {};  // it went away meanwhile, or is something else now
      info.st_mode = node.mode & S_IFMT;
      info.st_nlink = 1;
    }
    node.mode = static_cast<std::uint16_t>(info.st_mode);
    node.links = static_cast<std::uint32_t>(std::max<nlink_t>(1, info.st_nlink));
    node.uid = info.st_uid;
    node.gid = info.st_gid;
    node.changed = info.st_mtime;
    node.size = S_ISDIR(info.st_mode) ? 0 : static_cast<std::uint64_t>(info.st_size);
    if (S_ISLNK(node.mode)) {
      node.size = std::min<std::uint64_t>(node.size, kBlock - 1);
    }
    if (!S_ISDIR(node.mode) && node.size > 0) {
      const std::uint64_t first =
          place(S_ISLNK(node.mode) ? Kind::kLink : Kind::kFile, number, node.size);
      node.data = static_cast<std::uint32_t>(first);
      node.size = first == 0 ? 0 : node.size;
    }
  }
  if (S_ISDIR(node.mode) && !node.listed) {
    list(number);
    lay_out(number);
  }
}

// Its entries, as they are now. A folder that nobody here may read has none.
void Shelf::list(std::uint32_t number) {
  nodes_[number].listed = true;
  if (!is_within(number)) {
    return;
  }
  UniqueFd folder = open(number, O_RDONLY | O_DIRECTORY);
  const int fd = folder.get();
  struct Close {
    void operator()(DIR* stream) const { ::closedir(stream); }
  };
  const std::unique_ptr<DIR, Close> stream(folder.valid() ? ::fdopendir(folder.release())
                                                          : nullptr);
  while (const dirent* entry = stream ? ::readdir(stream.get()) : nullptr) {
    const std::string name = entry->d_name;
    unsigned char type = entry->d_type;
    if (name == "." || name == "..") {
      continue;
    }
    if (type == DT_UNKNOWN) {
      struct stat info{};
      if (::fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        continue;
      }
      type = IFTODT(info.st_mode);
    }
    if (type == DT_DIR || type == DT_REG || type == DT_LNK) {
      add(number, name, mode_of(type));
    }
  }
}

// Where the entries' inodes and the folder's contents are. Entries are in the order of their names,
// "." and ".." among them.
void Shelf::lay_out(std::uint32_t number) {
  Node& node = nodes_[number];
  std::sort(node.entries.begin(), node.entries.end(),
            [this](std::uint32_t a, std::uint32_t b) { return nodes_[a].name < nodes_[b].name; });
  const std::uint64_t inodes = place(Kind::kInodes, number, node.entries.size() * kInodeBytes);
  for (std::size_t i = 0; i < node.entries.size(); ++i) {
    nodes_[node.entries[i]].inode = inodes * kBlock + i * kInodeBytes;
  }
  // Contents: how many fit into each block. The two that every folder has count as entries of it.
  std::size_t used = kBlock;
  std::uint32_t position = 0;
  const auto count = [&](std::size_t name) {
    if (used + kEntryBytes + name > kBlock) {
      node.starts.push_back(position);
      used = 0;
    }
    used += kEntryBytes + name;
    ++position;
  };
  std::vector<std::string_view> names = {".", ".."};
  for (const std::uint32_t entry : node.entries) {
    names.emplace_back(nodes_[entry].name);
  }
  std::sort(names.begin(), names.end());
  for (const std::string_view name : names) {
    count(name.size());
  }
  node.size = (node.starts.size() - 1) * kBlock + used;
  node.data = static_cast<std::uint32_t>(place(Kind::kFolder, number, node.size));
}

void Shelf::write_inode(std::uint32_t number, char* out) {
  look(number);
  const Node& node = nodes_[number];
  constexpr std::uint16_t kExtended = 1;  // and its contents lie in blocks one after the other
  put<std::uint16_t>(out, kExtended);
  put<std::uint16_t>(out + 4, node.mode);
  put<std::uint64_t>(out + 8, node.size);
  put<std::uint32_t>(out + 16, node.data);
  put<std::uint32_t>(out + 20, static_cast<std::uint32_t>(node.inode / kSlot));
  put<std::uint32_t>(out + 24, node.uid);
  put<std::uint32_t>(out + 28, node.gid);
  put<std::uint64_t>(out + 32, static_cast<std::uint64_t>(node.changed));
  put<std::uint32_t>(out + 44, node.links);
}

void Shelf::write_inodes(std::uint32_t folder, std::uint64_t index, std::span<char> out) {
  const std::size_t first = index * kInodesOfBlock;
  for (std::size_t i = 0; i < kInodesOfBlock && first + i < nodes_[folder].entries.size(); ++i) {
    write_inode(nodes_[folder].entries[first + i], out.data() + i * kInodeBytes);
  }
}

void Shelf::write_entries(std::uint32_t folder, std::uint64_t index, std::span<char> out) const {
  const Node& node = nodes_[folder];
  struct Row {
    std::string_view name;
    std::uint64_t inode;
    char type;
  };
  const Node& above = node.parent == kNobody ? node : nodes_[node.parent];
  std::vector<Row> rows = {{".", node.inode, 2}, {"..", above.inode, 2}};
  for (const std::uint32_t entry : node.entries) {
    rows.push_back({nodes_[entry].name, nodes_[entry].inode, type_of(nodes_[entry].mode)});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  const std::size_t begin = node.starts[index];
  const std::size_t end = index + 1 < node.starts.size() ? node.starts[index + 1] : rows.size();
  std::size_t name_at = (end - begin) * kEntryBytes;
  for (std::size_t i = begin; i < end; ++i) {
    char* const entry = out.data() + (i - begin) * kEntryBytes;
    put<std::uint64_t>(entry, rows[i].inode / kSlot);
    put<std::uint16_t>(entry + 8, static_cast<std::uint16_t>(name_at));
    entry[10] = rows[i].type;
    std::memcpy(out.data() + name_at, rows[i].name.data(), rows[i].name.size());
    name_at += rows[i].name.size();
  }
}

void Shelf::write_super(std::span<char> out) const {
  char* const at = out.data() + kSuperAt;
  constexpr char kBits = 12;
  put<std::uint32_t>(at, kMagic);
  at[12] = kBits;
  put<std::uint16_t>(at + 14, static_cast<std::uint16_t>(kBlock / kSlot));  // the root's number
  put<std::uint64_t>(at + 16, 1);
  put<std::uint32_t>(at + 36, static_cast<std::uint32_t>(kBytes / kBlock));
}

bool Shelf::read_file(std::uint32_t node, std::uint64_t index, std::span<char> out) {
  auto found = open_.find(node);
  if (found == open_.end()) {
    UniqueFd file = open(node, O_RDONLY | O_NONBLOCK);
    if (!file.valid()) {
      return false;
    }
    if (open_order_.size() >= kMostOpen) {
      open_.erase(open_order_.front());
      open_order_.pop_front();
    }
    open_order_.push_back(node);
    found = open_.emplace(node, std::move(file)).first;
  }
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t n = ::pread(found->second.get(), out.data() + got, out.size() - got,
                              static_cast<off_t>(index * kBlock + got));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return false;
    }
    if (n == 0) {
      break;  // it has become shorter: the rest is zero
    }
    got += static_cast<std::size_t>(n);
  }
  return true;
}

bool Shelf::read_link(std::uint32_t node, std::span<char> out) const {
  const UniqueFd link = open(node, O_PATH);
  return link.valid() && ::readlinkat(link.get(), "", out.data(), out.size()) >= 0;
}

// One block that is not of a file's contents.
bool Shelf::read_block(std::uint64_t block, const Region* region, std::uint64_t index,
                       std::span<char> out) {
  if (block == 0) {
    write_super(out);
  } else if (block == 1) {
    write_inode(0, out.data());
  } else if (region != nullptr && region->kind == Kind::kInodes) {
    write_inodes(region->node, index, out);
  } else if (region != nullptr && region->kind == Kind::kFolder) {
    write_entries(region->node, index, out);
  } else if (region != nullptr && region->kind == Kind::kLink) {
    return read_link(region->node, out);
  }
  return true;
}

bool Shelf::read(std::uint64_t offset, std::span<char> out) {
  std::fill(out.begin(), out.end(), '\0');
  for (std::size_t at = 0; at < out.size();) {
    const std::uint64_t block = (offset + at) / kBlock;
    auto after = regions_.upper_bound(block);
    const bool after_one = after != regions_.begin();
    after = after_one ? std::prev(after) : after;
    const std::uint64_t index = after_one ? block - after->first : 0;
    const bool within = after_one && index < after->second.blocks;
    if (within && after->second.kind == Kind::kFile) {
      const std::uint64_t whole = (after->second.blocks - index) * kBlock;
      const std::size_t run =
          static_cast<std::size_t>(std::min<std::uint64_t>(out.size() - at, whole));
      if (!read_file(after->second.node, index, out.subspan(at, run))) {
        return false;
      }
      at += run;
      continue;
    }
    const Region region = within ? after->second : Region{};
    if (!read_block(block, within ? &region : nullptr, index, out.subspan(at, kBlock))) {
      return false;
    }
    at += kBlock;
  }
  return true;
}

}  // namespace carrel::microvm
