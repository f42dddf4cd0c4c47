#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace carrel::storage {

// As root, whose files those of workspaces and layers are. Below the ids that sandboxes have.
inline constexpr unsigned kWorkspaceId = 0x6fffffff;

// The values are what the list of a layer's changes says.
enum class EntryKind : char {
  kFile = 'f',
  kDirectory = 'd',
  kLink = 'l',
  kPipe = 'p',
  kGone = '-'
};

// The SHA-256 of a file's contents.
using ContentHash = std::array<unsigned char, 32>;

// One name in the tree of a workspace, and what it is.
struct TreeEntry {
  std::string path;  // from the top of the tree; the top itself is ""
  EntryKind kind = EntryKind::kFile;
  unsigned mode = 0;          // the permission bits
  std::uint64_t size = 0;     // of a file
  std::int64_t mtime_ns = 0;  // when its contents changed
  ContentHash hash{};         // of a file
  // Of a link, where it leads; of a file, the first of its other names if it has some.
  std::string target;
  // A directory that hides the one of the same name in the layers below instead of adding to it.
  bool opaque = false;
  std::string attributes =
      {};  // of a file or a directory, see attributes.h; a walk leaves it empty
};

// What else the file system says of a name: enough to tell that it is as it was.
struct TreeEvidence {
  std::uint64_t inode = 0;
  std::int64_t ctime_ns = 0;
  bool operator==(const TreeEvidence&) const = default;
};

struct ScannedEntry : TreeEntry {
  TreeEvidence evidence;
  std::uint64_t names = 1;     // of a file, how many it has
  std::uint32_t left_out = 0;  // of a directory, how many of its entries are in no walk
};

// The order of a walk: a directory, what is below it, and then its next sibling.
inline bool comes_before(std::string_view a, std::string_view b) {
  const std::size_t shorter = a.size() < b.size() ? a.size() : b.size();
  for (std::size_t i = 0; i < shorter; ++i) {
    if (a[i] != b[i]) {
      const auto rank = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c); };
      return rank(a[i]) < rank(b[i]);
    }
  }
  return a.size() < b.size();
}

// Whether `path` is `directory` or lies in it.
inline bool lies_in(std::string_view path, std::string_view directory) {
  return directory.empty() || path == directory ||
         (path.size() > directory.size() && path.starts_with(directory) &&
          path[directory.size()] == '/');
}

}  // namespace carrel::storage
