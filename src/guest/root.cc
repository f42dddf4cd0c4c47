#include "guest/root.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/remount.h"
#include "guest/root_builder.h"
#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

using namespace kernel::uapi;
using protocol::MountStep;
using protocol::StepKind;

bool RootBuilder::build_whole(const protocol::Plan& plan, std::span<int> trees) {
  trees_ = trees;
  // The root is attached last of the staged mounts: what is mounted on top of it would stay
  // reachable as "/..".
  return leave_host() && follow(plan.own, Pass::kTrees) && follow(plan.own, Pass::kTmpfs) &&
         begin_root() && follow(plan.shared, Pass::kRest) && follow(plan.alike, Pass::kRest) &&
         follow(plan.own, Pass::kRest) && end_trees() && enter();
}

bool RootBuilder::build_shared(std::string_view shared) {
  if (!leave_host() || !begin_root() || !follow(shared, Pass::kRest) || !keep_proc() || !enter()) {
    return false;
  }
  if (remounts_) {
    return failure_.at("build", "the shared part of a root", -ENOSYS);
  }
  return (chdir("/") == 0 && umount2(".", MNT_DETACH) == 0) ||
         failure_.at("detach", "the host's tree", -errno);
}

bool RootBuilder::build_further(std::string_view part) {
  copied_ = true;
  int root = openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) {
    return failure_.at("open", "/", -errno);
  }
  tree_.begin(root);
  bool built = follow(part, Pass::kTmpfs) && follow(part, Pass::kRest);
  forget();
  return built;
}

bool RootBuilder::leave_host() {
  // CRITICAL: without this, mounts made here would appear on the host.
  if (int result = make_private(); result < 0) {
    return failure_.at("make the mount tree private", "/", result);
  }
  umask(0);  // modes are meant as they are written; a command's own umask is set later
  return true;
}

bool RootBuilder::begin_root() {
  int root = make_tmpfs("size=4m,nr_inodes=4096,mode=0755");
  if (root < 0) {
    return failure_.at("mount a tmpfs for the root on", staging_.view(), root);
  }
  tree_.begin(root);
  return true;
}

bool RootBuilder::keep_proc() {
  tree_.select("proc");
  int proc = open_tree(AT_FDCWD, "/proc", kCloneTree | kNoFollow | kAtRecursive);
  int result = proc < 0 ? proc : put(proc, 0, 0);
  return result >= 0 || failure_.at("keep", "/proc", result);
}

bool RootBuilder::follow(std::string_view plan, Pass pass) {
  protocol::PlanReader steps(plan);
  MountStep step;
  while (steps.next(step)) {
    bool followed = true;
    if (pass == Pass::kTrees) {
      followed = step.kind != StepKind::kTree || take_tree(step);
    } else if ((step.kind == StepKind::kTmpfs) == (pass == Pass::kTmpfs)) {
      followed = take(step);
    }
    if (!followed) {
      return false;
    }
  }
  return steps.ok() || failure_.at("read the mount plan", "", -EBADMSG);
}

int RootBuilder::make_private() {
  MountAttributes request{};
  request.propagation = kPropagationPrivate;
  if (syscall(kMountSetattr, AT_FDCWD, "/", kAtRecursive, &request, sizeof request) == 0) {
    return 0;
  }
  remounts_ = errno == ENOSYS;
  return remounts_ && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : -errno;
}

int RootBuilder::protect(int mount, std::uint64_t set, unsigned flags) const {
  return remounts_ ? 0 : mount_set(mount, set, flags);
}

int RootBuilder::protect_attached(int mount, std::uint64_t set, unsigned flags) const {
  return remounts_ ? remount(mount, set, flags) : 0;
}

int RootBuilder::put(int mount, std::uint64_t set, unsigned flags) {
  int result = set == 0 ? 0 : protect(mount, set, flags);
  result = result < 0 ? result : tree_.put(mount);
  result = result < 0 || set == 0 ? result : protect_attached(mount, set, flags);
  close(mount);
  return result;
}

int RootBuilder::make_tmpfs(const char* options) {
  if (mount("tmpfs", staging_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
    return -errno;
  }
  ++staged_;
  int fd = openat(AT_FDCWD, staging_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

bool RootBuilder::take(const MountStep& step) {
  if (inside_ && (step.kind != StepKind::kReplace || find_replaced(step.path) == nullptr)) {
    return failure_.at("build", step.path, -EBADMSG);
  }
  tree_.select(step.path);
  switch (step.kind) {
    case StepKind::kDirectory: {
      int result = tree_.make_directory(step.mode);
      return result >= 0 || failure_.at("make directory", step.path, result);
    }
    case StepKind::kLink: {
      source_.set(step.source);
      int result = tree_.make_link(source_.c_str());
      return result >= 0 || failure_.at("make link", step.path, result);
    }
    case StepKind::kFile:
      return make_file(step);
    case StepKind::kTmpfs: {
      if (ahead_ == Ahead::kBuilt && built_.tmpfs[step.slot] >= 0) {
        return resize(step);
      }
      Text<96> options;
      options.add("size=").add_number(step.size).add(",nr_inodes=").add_number(step.count);
      options.add(",mode=0755");
      if (copied_) {
        // What is attached there later covers it, which costs less than to detach it.
        staging_.set(step.path);
      }
      int fd = make_tmpfs(options.c_str());
      built_.tmpfs[step.slot] = fd;
      return fd >= 0 || failure_.at("mount a tmpfs for", step.path, fd);
    }
    case StepKind::kSubdirectory:
      source_.set(step.source);
      if (mkdirat(built_.tmpfs[step.slot], source_.c_str(), step.mode) != 0) {
        return failure_.at("make directory", step.source, -errno);
      }
      return true;
    case StepKind::kAttach:
      return attach_tmpfs(step);
    case StepKind::kBind:
      return bind(step);
    case StepKind::kDevice:
      return bind_device(step);
    case StepKind::kProc:
      return mount_proc(step);
    case StepKind::kDevpts:
      return mount_devpts(step);
    case StepKind::kMask:
      return mask(step);
    case StepKind::kReadOnly:
      return make_read_only(step);
    case StepKind::kOverlay:
      return mount_overlay(step);
    case StepKind::kSealRoot: {
      int result = remounts_ ? remount(tree_.root(), kAttrReadOnly, 0)
                             : mount_set(tree_.root(), kAttrReadOnly, 0);
      return result >= 0 || failure_.at("make read-only", "/", result);
    }
    case StepKind::kReplace:
      return replace_file(step);
    case StepKind::kTree:
      return put_tree(step);
    case StepKind::kMountPoint:
      return make_mount_point(step);
  }
  return failure_.at("read the mount plan", step.path, -EBADMSG);
}

bool RootBuilder::enter() {
  if (fchdir(tree_.root()) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) {
    return failure_.at("move into", "the new root", -errno);
  }
  forget();
  return true;
}

void RootBuilder::forget() {
  tree_.end();
  for (const Cover& cover : {empty_file_, empty_directory_}) {
    for (int fd : {cover.mounted, cover.next}) {
      if (fd >= 0) {
        close(fd);
      }
    }
  }
}

bool build_root(const protocol::Plan& plan, std::span<int> trees, BuiltRoot& built,
                Failure& failure) {
  RootBuilder builder(plan.staging, built, failure);
  return builder.build_whole(plan, trees);
}

bool build_shared(const protocol::Nursery& nursery, Failure& failure) {
  BuiltRoot nothing;
  RootBuilder builder(nursery.staging, nothing, failure);
  return builder.build_shared(nursery.shared);
}

bool build_further(std::string_view part, BuiltRoot& built, Failure& failure) {
  RootBuilder builder({}, built, failure);
  return builder.build_further(part);
}

bool is_top(Failure& failure) {
  struct stat here{};
  struct stat above{};
  if (chdir("/") != 0 || stat("/", &here) != 0 || stat("/..", &above) != 0 ||
      here.st_ino != above.st_ino || here.st_dev != above.st_dev) {
    return failure.at("check", "the new root", -EXDEV);
  }
  return true;
}

}  // namespace carrel::guest
