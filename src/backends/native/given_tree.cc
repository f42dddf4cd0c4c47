#include "backends/native/given_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "backends/native/id_ranges.h"
#include "backends/native/image_home.h"
#include "backends/native/overlay.h"
#include "kernel/detached_mount.h"
#include "kernel/uapi/mount.h"

namespace carrel::native {

namespace {

using namespace kernel::uapi;

static_assert(kernel::kIdsOfOwners <= kIdsPerSandbox);

Error in_tree(Error error, const GivenTree& tree) {
  error.message = "mount '" + tree.path + "': cannot " + error.message;
  return error;
}

Result<UniqueFd> duplicate_mount(int mount) {
  UniqueFd copy(::fcntl(mount, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return system_error("keep a mount open");
  }
  return copy;
}

}  // namespace

Result<std::vector<GivenTree>> duplicate(const std::vector<GivenTree>& trees) {
  std::vector<GivenTree> copies;
  for (const GivenTree& tree : trees) {
    GivenTree copy;
    copy.source.reset(::fcntl(tree.source.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy.source.valid()) {
      return system_error("keep '" + tree.path + "' open");
    }
    copy.standing = tree.standing;
    copy.path = tree.path;
    copy.target = tree.target;
    copy.kind = tree.kind;
    copy.mode = tree.mode;
    copy.owner = tree.owner;
    copy.hidden = tree.hidden;
    copy.overlay = tree.overlay;
    copy.own_bytes = tree.own_bytes;
    copies.push_back(std::move(copy));
  }
  return copies;
}

Result<PreparedTree> prepare(const GivenTree& tree, std::uint32_t id) {
  PreparedTree prepared;
  if (tree.overlay.has_value() && !is_image_home(tree)) {
    auto made = make_overlay(tree, id);
    if (!made.ok()) {
      return in_tree(std::move(made.error()), tree);
    }
    prepared.mount = std::move(made.value());
    prepared.ownership = ::geteuid() == 0 ? Ownership::kMapped : Ownership::kCallers;
    return prepared;
  }
  if (::geteuid() != 0) {
    return prepared;
  }
  auto copy = tree.standing == GivenTree::Standing::kInTree ? kernel::copy_mounts(tree.source.get())
                                                            : duplicate_mount(tree.source.get());
  if (!copy.ok()) {
    return in_tree(std::move(copy.error()), tree);
  }
  prepared.mount = std::move(copy.value());
  const int mount = prepared.mount.get();
  const bool writable = tree.mode == policy::MountMode::kReadWrite;
  // CRITICAL: the guest does this again, but what is read-only by then depends on no guest.
  Status sealed = kernel::seal_mounts(
      mount, kAttrNoSuid | kAttrNoDev | (writable ? std::uint64_t{0} : kAttrReadOnly));
  if (!sealed.ok() && !writable && sealed.error().error_number == ENOSYS) {
    prepared.ownership = Ownership::kUnmapped;  // the guest has another way
    return prepared;
  }
  if (!sealed.ok()) {
    return in_tree(std::move(sealed.error()), tree);
  }
  const kernel::OwnerMap map{{tree.owner.user, id}, {tree.owner.group, id}};
  Status mapped = kernel::map_owners(mount, map, kernel::Depth::kWhole);
  if (mapped.ok()) {
    prepared.ownership = Ownership::kMapped;
    return prepared;
  }
  if (writable) {
    Error error = in_tree(std::move(mapped.error()), tree);
    error.code = Code::kUnsupported;
    error.hint =
        "its file system has no idmapped mounts: mount it read-only, or run carrel as its owner";
    return error;
  }
  prepared.ownership = kernel::map_owners(mount, map, kernel::Depth::kTop).ok()
                           ? Ownership::kTop
                           : Ownership::kUnmapped;
  return prepared;
}

}  // namespace carrel::native
