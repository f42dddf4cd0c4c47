// Trees of the host's that a sandbox is given by descriptor.
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/root_builder.h"
#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

using namespace kernel::uapi;
using protocol::MountStep;

namespace {

bool are_the_same(int one, int other) {
  struct stat a{};
  struct stat b{};
  return fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// Nothing that is mounted on the host later appears in it, nor the other way round.
int separate(int mount_fd) {
  MountAttributes request{};
  request.propagation = kPropagationPrivate;
  if (syscall(kMountSetattr, mount_fd, "", kAtRecursive | AT_EMPTY_PATH, &request,
              sizeof request) == 0) {
    return 0;
  }
  return -errno;
}

// The same for one that is at its place, on kernels without mount_setattr.
int separate_attached(int mount_fd) {
  Text<40> path;
  path.add("/proc/self/fd/").add_number(static_cast<std::uint64_t>(mount_fd));
  return mount(nullptr, path.c_str(), nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : -errno;
}

}  // namespace

// What is at the step's path in this namespace, if that is what was given.
int RootBuilder::find_again(const MountStep& step, int given) {
  std::string_view path = step.source;
  path.remove_prefix(1);
  source_.set(path);
  int top = openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (top < 0) {
    return -errno;
  }
  int found = open_beneath(top, source_.c_str(), O_PATH);
  close(top);
  // CRITICAL: the path was checked through the given descriptor, and can lead elsewhere by now. An
  // inode that is open is not used again for something else.
  if (found >= 0 && !are_the_same(found, given)) {
    close(found);
    return -ESTALE;
  }
  return found;
}

bool RootBuilder::take_tree(const MountStep& step) {
  if (step.slot >= trees_.size() || trees_[step.slot] < 0) {
    return failure_.at("read the mount plan", step.path, -EBADMSG);
  }
  if (step.source.empty()) {
    return true;
  }
  int& tree = trees_[step.slot];
  int found = step.source.front() == '/' ? find_again(step, tree) : -EBADMSG;
  if (found < 0) {
    return failure_.at("mount what was checked as", step.source, found);
  }
  int copy = open_tree(found, "", kCloneTree | kAtEmptyPath | kAtRecursive);
  close(found);
  // CRITICAL: through a directory of the host's a command could get out.
  close(tree);
  tree = copy;
  return copy >= 0 || failure_.at("copy the mounts of", step.source, copy);
}

// CRITICAL: it has all attributes before it is anywhere, and so has everything that is mounted in
// it. Where the kernel cannot do that, this process is still alone when it gets them.
bool RootBuilder::put_tree(const MountStep& step) {
  if (step.slot >= trees_.size() || trees_[step.slot] < 0) {
    return failure_.at("read the mount plan", step.path, -EBADMSG);
  }
  int mount = trees_[step.slot];
  trees_[step.slot] = -1;
  const std::uint64_t set = attributes_of(step) | kAttrNoDev;
  int result = remounts_ ? 0 : separate(mount);
  result = result < 0 ? result : protect(mount, set, kAtRecursive);
  result = result < 0 ? result : tree_.put(mount);
  result = result < 0 || !remounts_ ? result : separate_attached(mount);
  result = result < 0 ? result : protect_attached(mount, set, kAtRecursive);
  close(mount);
  return result >= 0 || failure_.at("mount and protect", step.path, result);
}

// CRITICAL: a tree that no step has used would stay open.
bool RootBuilder::end_trees() {
  for (int tree : trees_) {
    if (tree >= 0) {
      return failure_.at("read the mount plan", "a tree that is not used", -EBADMSG);
    }
  }
  return true;
}

bool RootBuilder::make_mount_point(const MountStep& step) {
  struct stat info{};
  int result = tree_.look(info);
  return result == -ENOENT ? make_target(step)
                           : result >= 0 || failure_.at("look at", step.path, result);
}

}  // namespace carrel::guest
