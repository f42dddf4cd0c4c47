#include "kernel/detached_mount.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/files.h"
#include "kernel/uapi/mount.h"
#include "kernel/user_namespace.h"

namespace carrel::kernel {

namespace {

using uapi::MountAttributes;

Status set_attributes(int mount, const MountAttributes& wanted, Depth depth, const char* what) {
  const unsigned flags = uapi::kAtEmptyPath | (depth == Depth::kWhole ? uapi::kAtRecursive : 0U);
  if (::syscall(uapi::kMountSetattr, mount, "", flags, &wanted, sizeof wanted) == 0) {
    return {};
  }
  const bool unknown = errno == ENOSYS || errno == EINVAL || errno == EOPNOTSUPP;
  return Error{unknown ? Code::kUnsupported : Code::kSystem, errno, what,
               errno == ENOSYS ? "this needs Linux 5.12" : ""};
}

// The pair, and for all others one of the ids after `seen`: a file whose owner is nobody in the map
// cannot be written by anybody.
std::string map_of(const IdPair& pair) {
  constexpr std::uint32_t kOthers = kIdsOfOwners - 1;  // from 0 on
  std::string map;
  const auto add = [&](std::uint32_t stored, std::uint32_t seen, std::uint32_t count) {
    if (count > 0) {
      map +=
          std::to_string(stored) + " " + std::to_string(seen) + " " + std::to_string(count) + "\n";
    }
  };
  const std::uint32_t before = std::min(pair.stored, kOthers);
  add(pair.stored, pair.seen, 1);
  add(0, pair.seen + 1, before);
  if (pair.stored < kOthers) {
    add(pair.stored + 1, pair.seen + 1 + before, kOthers - before - 1);
  }
  return map;
}

}  // namespace

Result<UniqueFd> copy_mounts(int path_fd) {
  UniqueFd copy(static_cast<int>(
      ::syscall(SYS_open_tree, path_fd, "",
                OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | uapi::kAtEmptyPath | uapi::kAtRecursive)));
  if (!copy.valid()) {
    return system_error("copy the host's mounts");
  }
  return copy;
}

Status seal_mounts(int mount, std::uint64_t attributes) {
  MountAttributes wanted;
  wanted.set = attributes;
  wanted.propagation = uapi::kPropagationPrivate;
  return set_attributes(mount, wanted, Depth::kWhole, "protect a copy of the host's mounts");
}

Status map_owners(int mount, const OwnerMap& map, Depth depth) {
  CARREL_ASSIGN(const UniqueFd ids, make_user_namespace(map_of(map.user), map_of(map.group)));
  MountAttributes wanted;
  wanted.set = uapi::kAttrIdMap;
  wanted.user_namespace = static_cast<std::uint64_t>(ids.get());
  return set_attributes(mount, wanted, depth, "map the owners of a mount's files");
}

}  // namespace carrel::kernel
