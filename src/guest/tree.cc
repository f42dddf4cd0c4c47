#include "guest/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

void Tree::begin(int root) {
  end();
  root_ = root;
}

void Tree::end() {
  forget_parent();
  if (root_ >= 0) {
    close(root_);
    root_ = -1;
  }
}

// The directory that holds the last name of the path; sets `leaf_`. It stays open for the next
// path, which is most often in the same one.
int Tree::open_parent() {
  std::string_view path = path_.view();
  std::size_t slash = path.rfind('/');
  leaf_ = path_.c_str() + (slash == std::string_view::npos ? 0 : slash + 1);
  std::string_view parent =
      slash == std::string_view::npos ? std::string_view(".") : path.substr(0, slash);
  if (parent_ >= 0 && parent == parent_path_.view()) {
    return parent_;
  }
  forget_parent();
  parent_path_.set(parent);
  parent_ = open_beneath(root_, parent_path_.c_str(), O_PATH | O_DIRECTORY);
  return parent_;
}

void Tree::forget_parent() {
  if (parent_ >= 0) {
    close(parent_);
    parent_ = -1;
  }
}

// Calls `make` for the leaf in its directory, and again without what had the name before.
template <typename Make>
int Tree::make_anew(Make make) {
  int parent = open_parent();
  if (parent < 0) {
    return parent;
  }
  int result = make(parent);
  if (result < 0 && errno == EEXIST && unlinkat(parent, leaf_, 0) == 0) {
    result = make(parent);
  }
  return result < 0 ? -errno : result;
}

int Tree::make_directory(mode_t mode) {
  int parent = open_parent();
  if (parent < 0) {
    return parent;
  }
  return mkdirat(parent, leaf_, mode) == 0 || errno == EEXIST ? 0 : -errno;
}

int Tree::make_file(mode_t mode) {
  return make_anew([&](int parent) {
    return openat(parent, leaf_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  });
}

int Tree::make_empty_file(mode_t mode) {
  return make_anew([&](int parent) { return mknodat(parent, leaf_, S_IFREG | mode, 0); });
}

int Tree::make_link(const char* target) {
  return make_anew([&](int parent) { return symlinkat(target, parent, leaf_); });
}

int Tree::look(struct stat& info) {
  int parent = open_parent();
  if (parent < 0) {
    return parent;
  }
  return fstatat(parent, leaf_, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : -errno;
}

int Tree::clone() {
  int parent = open_parent();
  constexpr unsigned kCloneTree = 1;  // OPEN_TREE_CLONE
  return parent < 0 ? parent
                    : open_tree(parent, leaf_,
                                kCloneTree | AT_SYMLINK_NOFOLLOW | kernel::uapi::kAtRecursive);
}

int Tree::put(int mount) {
  int result = open_parent();
  if (result >= 0) {
    result = move_mount(mount, parent_, leaf_);
  }
  // A directory that was opened there before, or below, lies beneath the mount now.
  std::string_view covered = path_.view();
  if (parent_path_.view().substr(0, covered.size()) == covered) {
    forget_parent();
  }
  return result < 0 ? result : 0;
}

}  // namespace carrel::guest
