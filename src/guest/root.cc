#include "guest/root.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "guest/remount.h"
#include "guest/runtime.h"
#include "guest/tree.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

namespace {

using namespace kernel::uapi;
using protocol::MountStep;
using protocol::StepKind;

constexpr unsigned kCloneTree = 1;  // OPEN_TREE_CLONE
constexpr unsigned kNoFollow = 0x100;
constexpr std::uint64_t kTmpfsAttributes = kAttrNoSuid | kAttrNoDev;  // every new mount has these
constexpr std::uint64_t kCoverAttributes =
    kAttrReadOnly | kAttrNoSuid | kAttrNoExec | kAttrNoDev;

class RootBuilder {
 public:
  RootBuilder(std::string_view staging, BuiltRoot& built, Failure& failure)
      : staging_(staging), built_(built), failure_(failure) {}

  bool build_whole(const protocol::Plan& plan) {
    // The root is attached last of the staged mounts: what is mounted on top of it would stay
    // reachable as "/..".
    return leave_host() && follow(plan.own, Pass::kTmpfs) && begin_root() &&
           follow(plan.shared, Pass::kRest) && follow(plan.alike, Pass::kRest) &&
           follow(plan.own, Pass::kRest) && enter();
  }

  bool build_shared(std::string_view shared) {
    if (!leave_host() || !begin_root() || !follow(shared, Pass::kRest) || !keep_proc() ||
        !enter()) {
      return false;
    }
    if (remounts_) {
      return failure_.at("build", "the shared part of a root", -ENOSYS);
    }
    return (chdir("/") == 0 && umount2(".", MNT_DETACH) == 0) ||
           failure_.at("detach", "the host's tree", -errno);
  }

  bool build_further(std::string_view part) {
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

 private:
  enum class Pass { kTmpfs, kRest };
  struct Cover {
    int mounted = -1;  // what the others are cloned from
    int next = -1;     // one that is not used yet
  };

  bool leave_host() {
    // CRITICAL: without this, mounts made here would appear on the host.
    if (int result = make_private(); result < 0) {
      return failure_.at("make the mount tree private", "/", result);
    }
    umask(0);  // modes are meant as they are written; a command's own umask is set later
    return true;
  }

  bool begin_root() {
    int root = make_tmpfs("size=4m,nr_inodes=4096,mode=0755");
    if (root < 0) {
      return failure_.at("mount a tmpfs for the root on", staging_.view(), root);
    }
    tree_.begin(root);
    return true;
  }

  // The host's proc with what is mounted in it: a copy without would show more than the original.
  bool keep_proc() {
    tree_.select("proc");
    int proc = open_tree(AT_FDCWD, "/proc", kCloneTree | kNoFollow | kAtRecursive);
    int result = proc < 0 ? proc : put(proc, 0, 0);
    return result >= 0 || failure_.at("keep", "/proc", result);
  }

  bool follow(std::string_view plan, Pass pass) {
    protocol::PlanReader steps(plan);
    MountStep step;
    while (steps.next(step)) {
      if ((step.kind == StepKind::kTmpfs) == (pass == Pass::kTmpfs) && !take(step)) {
        return false;
      }
    }
    return steps.ok() || failure_.at("read the mount plan", "", -EBADMSG);
  }

  int make_private() {
    MountAttributes request{};
    request.propagation = kPropagationPrivate;
    if (syscall(kMountSetattr, AT_FDCWD, "/", kAtRecursive, &request, sizeof request) == 0) {
      return 0;
    }
    remounts_ = errno == ENOSYS;
    return remounts_ && mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 ? 0 : -errno;
  }

  // A mount gets its attributes while it is detached. A kernel that cannot do that remounts it as
  // soon as it is at its place.
  [[nodiscard]] int protect(int mount, std::uint64_t set, unsigned flags) const {
    return remounts_ ? 0 : mount_set(mount, set, flags);
  }
  [[nodiscard]] int protect_attached(int mount, std::uint64_t set, unsigned flags) const {
    return remounts_ ? remount(mount, set, flags) : 0;
  }

  // Protects the mount and puts it at the tree's path. Closes it.
  int put(int mount, std::uint64_t set, unsigned flags) {
    int result = set == 0 ? 0 : protect(mount, set, flags);
    result = result < 0 ? result : tree_.put(mount);
    result = result < 0 || set == 0 ? result : protect_attached(mount, set, flags);
    close(mount);
    return result;
  }

  static bool is_device(int fd, dev_t number) {
    struct stat info {};
    return fstat(fd, &info) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == number;
  }

  // A new tmpfs. It is attached on top of the staging directory, because only an attached mount
  // can be cloned from; what is left there goes away with the host's tree.
  int make_tmpfs(const char* options) {
    if (mount("tmpfs", staging_.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options) != 0) {
      return -errno;
    }
    int fd = openat(AT_FDCWD, staging_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
  }

  bool take(const MountStep& step) {
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
        source_.set(step.source);
        return attach(step, open_tree(built_.tmpfs[step.slot], source_.c_str(), kCloneTree),
                      attributes(step), kTmpfsAttributes);
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
    }
    return failure_.at("read the mount plan", step.path, -EBADMSG);
  }

  static std::uint64_t attributes(const MountStep& step) {
    std::uint64_t set = kAttrNoSuid;
    if ((step.flags & protocol::kStepReadOnly) != 0) {
      set |= kAttrReadOnly;
    }
    if ((step.flags & protocol::kStepNoExec) != 0) {
      set |= kAttrNoExec;
    }
    return set;
  }

  // Puts the mount at the step's path with the attributes that it does not have yet.
  bool attach(const MountStep& step, int mount, std::uint64_t set, std::uint64_t present) {
    if (mount < 0) {
      return failure_.at("take", step.source.empty() ? step.path : step.source, mount);
    }
    int result = put(mount, (set & ~present) == 0 ? 0 : set, kAtRecursive);
    return result >= 0 || failure_.at("mount and protect", step.path, result);
  }

  bool make_file(const MountStep& step) {
    int fd = tree_.make_file(step.mode);
    if (fd < 0) {
      return failure_.at("make file", step.path, fd);
    }
    bool written = write_whole(fd, step.source);
    int reason = -errno;
    close(fd);
    return written || failure_.at("write file", step.path, reason);
  }

  bool bind(const MountStep& step) {
    source_.set(step.source);
    int mount = open_tree(AT_FDCWD, source_.c_str(), kCloneTree | kNoFollow | kAtRecursive);
    if (mount == -ENOENT && (step.flags & protocol::kStepOptional) != 0) {
      return true;
    }
    if (!make_target(step)) {
      return false;
    }
    return attach(step, mount, attributes(step) | kAttrNoDev, 0);
  }

  bool make_target(const MountStep& step) {
    int result = (step.flags & protocol::kStepIsFile) == 0 ? tree_.make_directory(0755)
                                                           : tree_.make_empty_file(0644);
    return result >= 0 || failure_.at("make mount point", step.path, result);
  }

  // CRITICAL: the node is checked on the descriptor that is mounted, so a planted file or another
  // device cannot take its place.
  bool bind_device(const MountStep& step) {
    source_.set(step.source);
    int mount = open_tree(AT_FDCWD, source_.c_str(), kCloneTree | kNoFollow);
    if (mount >= 0 && !is_device(mount, static_cast<dev_t>(step.size))) {
      close(mount);
      return failure_.at("check device", step.source, -ENODEV);
    }
    return make_target(step) && attach(step, mount, attributes(step), 0);
  }

  bool mount_proc(const MountStep& step) {
    int context = fs_open("proc");
    int result = context < 0 ? context : fs_create(context);
    int mount = result < 0 ? result : fs_mount(context, kAttrNoSuid | kAttrNoDev | kAttrNoExec);
    if (context >= 0) {
      close(context);
    }
    if (mount < 0) {
      return failure_.at("mount proc at", step.path, mount);
    }
    // CRITICAL: what a copied root has there is the host's.
    if (copied_ && umount2("/proc", MNT_DETACH) != 0) {
      return failure_.at("detach", "the host's proc", -errno);
    }
    built_.proc_sys_user = openat(mount, "sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (built_.tmpfs[kGuestSlot] >= 0) {
      built_.loadavg = openat(mount, "loadavg", O_RDONLY | O_CLOEXEC);
    }
    return make_target(step) && attach(step, mount, 0, 0);
  }

  bool mount_devpts(const MountStep& step) {
    int context = fs_open("devpts");
    int result = context < 0 ? context : fs_set(context, "ptmxmode", "0666");
    result = result < 0 ? result : fs_set(context, "mode", "0620");
    result = result < 0 ? result : fs_create(context);
    int mount = result < 0 ? result : fs_mount(context, kAttrNoSuid | kAttrNoExec);
    if (context >= 0) {
      close(context);
    }
    if (mount < 0) {
      return failure_.at("mount devpts at", step.path, mount);
    }
    return make_target(step) && attach(step, mount, 0, 0);
  }

  // A file with this content in the tmpfs in `slot`, as a mount of its own; it cannot be reached in
  // any other way.
  int make_text(std::uint8_t slot, std::string_view content) {
    int directory = built_.tmpfs[slot];
    Text<32> name;
    name.add("text").add_number(texts_++);
    int file = openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    bool written = file >= 0 && write_whole(file, content);
    int result = written ? 0 : -errno;
    if (file >= 0) {
      close(file);
    }
    return result < 0 ? result : open_tree(directory, name.c_str(), kCloneTree);
  }

  bool replace_file(const MountStep& step) {
    if ((step.flags & protocol::kStepIsFile) != 0 && !make_target(step)) {
      return false;
    }
    int text = make_text(step.slot, step.source);
    int result = text < 0 ? text : put(text, kCoverAttributes, 0);
    return result >= 0 || result == -ENOENT || failure_.at("replace", step.path, result);
  }

  // Hides a file or a directory behind an empty one that nobody can write to (/dev/null would take
  // what is written). The first cover is prepared, the others are clones of it as it is mounted.
  bool mask(const MountStep& step) {
    if ((step.flags & protocol::kStepOptional) != 0) {
      struct stat info {};
      int result = tree_.look(info);
      if (result == -ENOENT || (result == 0 && out_of_reach(info))) {
        return true;
      }
    }
    bool file = (step.flags & protocol::kStepIsFile) != 0;
    Cover& cover = file ? empty_file_ : empty_directory_;
    int result = cover.next >= 0 ? 0 : make_cover(step, cover);
    result = result < 0 ? result : tree_.put(cover.next);
    if (result == -ENOENT) {
      return true;  // there is nothing to hide; the cover is for the next one
    }
    if (result >= 0 && cover.mounted < 0) {
      result = protect_attached(cover.next, kCoverAttributes, 0);
    }
    if (result < 0) {
      return failure_.at("hide", step.path, result);
    }
    if (cover.mounted < 0) {
      cover.mounted = cover.next;
    } else {
      close(cover.next);
    }
    cover.next = -1;
    return true;
  }

  int make_cover(const MountStep& step, Cover& cover) {
    if (cover.mounted >= 0) {
      cover.next = open_tree(cover.mounted, "", kCloneTree | kAtEmptyPath);
      return cover.next;
    }
    source_.set(step.source);
    cover.next = open_tree(tree_.root(), source_.c_str(), kCloneTree | kNoFollow);
    return cover.next < 0 ? cover.next : protect(cover.next, kCoverAttributes, 0);
  }

  // Whether the kernel itself refuses this file to everybody in the sandbox: it belongs to a user
  // and a group of the host that have no id here, so that no capability of the sandbox's counts for
  // it, and it is open to its owner only.
  static bool out_of_reach(const struct stat& info) {
    constexpr unsigned kNobody = 65534;
    return info.st_uid == kNobody && info.st_gid == kNobody && (info.st_mode & 0077) == 0;
  }

  bool make_read_only(const MountStep& step) {
    int mount = tree_.clone();
    if (mount == -ENOENT) {
      return true;
    }
    int result = mount < 0 ? mount : put(mount, kAttrReadOnly, kAtRecursive);
    return result >= 0 || failure_.at("make read-only", step.path, result);
  }

  bool mount_overlay(const MountStep& step) {
    // The layers are named through descriptors, so no byte of a path can be read as an option.
    int slot = built_.tmpfs[step.slot];
    source_.set(step.source);
    int lower = openat(AT_FDCWD, source_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lower < 0) {
      return failure_.at("open", step.source, -errno);
    }
    Text<24> upper_name;
    upper_name.add("upper").add_number(overlays_);
    Text<24> work_name;
    work_name.add("work").add_number(overlays_);
    ++overlays_;
    if (mkdirat(slot, upper_name.c_str(), 0755) != 0 ||
        mkdirat(slot, work_name.c_str(), 0700) != 0) {
      return failure_.at("make the overlay's directories for", step.path, -errno);
    }
    int upper = openat(slot, upper_name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int work = openat(slot, work_name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    Text<40> lower_path;
    lower_path.add("/proc/self/fd/").add_number(static_cast<std::uint64_t>(lower));
    Text<40> upper_path;
    upper_path.add("/proc/self/fd/").add_number(static_cast<std::uint64_t>(upper));
    Text<40> work_path;
    work_path.add("/proc/self/fd/").add_number(static_cast<std::uint64_t>(work));
    int context = fs_open("overlay");
    int result = context < 0 ? context : fs_set(context, "lowerdir", lower_path.c_str());
    result = result < 0 ? result : fs_set(context, "upperdir", upper_path.c_str());
    result = result < 0 ? result : fs_set(context, "workdir", work_path.c_str());
    result = result < 0 ? result : fs_set(context, "userxattr", nullptr);
    result = result < 0 ? result : fs_set(context, "index", "off");
    result = result < 0 ? result : fs_set(context, "metacopy", "off");
    result = result < 0 ? result : fs_create(context);
    int mount = result < 0 ? result : fs_mount(context, kAttrNoSuid | kAttrNoDev);
    close(lower);
    close(upper);
    close(work);
    if (context >= 0) {
      close(context);
    }
    if (mount < 0) {
      return failure_.at("mount an overlay of", step.source, mount);
    }
    if (step.path.empty()) {  // the root itself
      return replace_root(step, mount);
    }
    return make_target(step) && attach(step, mount, attributes(step), kTmpfsAttributes);
  }

  // From here on the plan builds on `mount` instead of on the empty tmpfs.
  bool replace_root(const MountStep& step, int mount) {
    int target = openat(AT_FDCWD, staging_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int result = target < 0 ? -errno : move_mount(mount, target, "");
    if (target >= 0) {
      close(target);
    }
    if (result < 0) {
      return failure_.at("mount the image", step.source, result);
    }
    tree_.begin(mount);
    return true;
  }

  // The host's tree lies on top of the new root after this, and is detached as a whole.
  bool enter() {
    if (fchdir(tree_.root()) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) {
      return failure_.at("move into", "the new root", -errno);
    }
    forget();
    return true;
  }

  void forget() {
    tree_.end();
    for (const Cover& cover : {empty_file_, empty_directory_}) {
      for (int fd : {cover.mounted, cover.next}) {
        if (fd >= 0) {
          close(fd);
        }
      }
    }
  }

  Name staging_;
  BuiltRoot& built_;
  Failure& failure_;
  Tree tree_;
  Name source_;
  Cover empty_file_;
  Cover empty_directory_;
  unsigned overlays_ = 0;
  unsigned texts_ = 0;
  bool remounts_ = false;  // the kernel has no mount_setattr
  bool copied_ = false;    // the shared part was there
};

}  // namespace

bool build_root(const protocol::Plan& plan, BuiltRoot& built, Failure& failure) {
  RootBuilder builder(plan.staging, built, failure);
  return builder.build_whole(plan);
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
  struct stat here {};
  struct stat above {};
  if (chdir("/") != 0 || stat("/", &here) != 0 || stat("/..", &above) != 0 ||
      here.st_ino != above.st_ino || here.st_dev != above.st_dev) {
    return failure.at("check", "the new root", -EXDEV);
  }
  return true;
}

}  // namespace carrel::guest
