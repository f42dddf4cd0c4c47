#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "policy/spec.h"

namespace carrel::native {

// A folder or a file of the host that is put into a sandbox, with everything that is mounted in it.
// What the descriptor is, is what appears inside: no path of it is looked up again without being
// compared with the descriptor.
struct GivenTree {
  enum class Kind { kFolder, kFile };
  // What is covered by something empty, by its path from the top of the tree.
  struct Hidden {
    std::string path;
    Kind kind = Kind::kFile;
    std::string why;  // for people
  };
  // Whose files the sandbox's user has. As root he is that one on this tree, and whatever he makes
  // there belongs to that one on the host. An ordinary user's sandbox has his own id anyway.
  struct Owner {
    std::uint32_t user = 0;
    std::uint32_t group = 0;
  };

  // Directories below `top` that an overlay is made of, the lowest layer first. Their files belong
  // to the owner. Names have no character that a mount option cannot have.
  // Without an upper one the source is the layer, under what the sandbox writes (image_home.h).
  struct Overlay {
    std::string top;
    std::vector<std::string> layers;
    std::string upper;
    std::string work;
    std::string place;  // an empty directory
    std::string mount;  // where the source is put, above `upper` and `work`, if it is not mounted
  };

  // Whether the source has a place in the host's tree, or is a mount that has none.
  enum class Standing { kInTree, kNowhere };

  UniqueFd source;                        // O_PATH
  Standing standing = Standing::kInTree;  // what stands nowhere is given once
  std::string path;                       // where the host has it
  std::string target;                     // where it appears; absolute, made if it is missing
  Kind kind = Kind::kFolder;
  policy::MountMode mode = policy::MountMode::kReadOnly;
  Owner owner;
  std::vector<Hidden> hidden;      // none below another
  std::optional<Overlay> overlay;  // what is put there instead; `source` is its upper directory
  // What the file system holds that nobody else has; zero: it is somebody's, too.
  std::uint64_t own_bytes = 0;
};

// Where a sandbox's workspace is, a named one and its own.
inline constexpr char kWorkspace[] = "/workspace";

// How it came into the sandbox, for the report.
enum class Ownership {
  kCallers,   // an ordinary user's: his own id
  kMapped,    // the owner's files are the sandbox's
  kTop,       // the same, but not in what is mounted further down
  kUnmapped,  // read-only: what everybody may read can be read
};

// The same trees with descriptors of their own.
Result<std::vector<GivenTree>> duplicate(const std::vector<GivenTree>& trees);

struct PreparedTree {
  UniqueFd mount;  // not valid for an ordinary user: only a guest can copy mounts then
  Ownership ownership = Ownership::kCallers;
};

// What is sent to a guest whose user is `id` on the host. As root that is a copy of the mounts at
// the source, protected, with its owner mapped. A writable tree whose owner cannot be mapped is
// refused (kUnsupported).
Result<PreparedTree> prepare(const GivenTree& tree, std::uint32_t id);

}  // namespace carrel::native
