#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/machine.h"
#include "guest/root_builder.h"
#include "guest/runtime.h"
#include "kernel/uapi/mount.h"

namespace carrel::guest {

using namespace kernel::uapi;
using protocol::MountStep;

namespace {

constexpr std::uint64_t kTmpfsAttributes = kAttrNoSuid | kAttrNoDev;  // every new mount has these
constexpr std::uint64_t kCoverAttributes = kAttrReadOnly | kAttrNoSuid | kAttrNoExec | kAttrNoDev;

bool is_device(int fd, dev_t number) {
  struct stat info{};
  return fstat(fd, &info) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == number;
}

// Whether the kernel itself refuses this file to everybody in the sandbox: it belongs to a user
// and a group of the host that have no id here, so that no capability of the sandbox's counts for
// it, and it is open to its owner only.
bool out_of_reach(const struct stat& info) {
  constexpr unsigned kNobody = 65534;
  return info.st_uid == kNobody && info.st_gid == kNobody && (info.st_mode & 0077) == 0;
}

}  // namespace

std::uint64_t attributes_of(const MountStep& step) {
  std::uint64_t set = kAttrNoSuid;
  if ((step.flags & protocol::kStepReadOnly) != 0) {
    set |= kAttrReadOnly;
  }
  if ((step.flags & protocol::kStepNoExec) != 0) {
    set |= kAttrNoExec;
  }
  return set;
}

bool RootBuilder::make_file(const MountStep& step) {
  int fd = tree_.make_file(step.mode);
  if (fd < 0) {
    return failure_.at("make file", step.path, fd);
  }
  bool written = write_whole(fd, step.source);
  int reason = -errno;
  close(fd);
  return written || failure_.at("write file", step.path, reason);
}

bool RootBuilder::make_target(const MountStep& step) {
  int result = (step.flags & protocol::kStepIsFile) == 0 ? tree_.make_directory(0755)
                                                         : tree_.make_empty_file(0644);
  return result >= 0 || failure_.at("make mount point", step.path, result);
}

// Puts the mount at the step's path with the attributes that it does not have yet.
bool RootBuilder::attach(const MountStep& step, int mount, std::uint64_t set,
                         std::uint64_t present) {
  if (mount < 0) {
    return failure_.at("take", step.source.empty() ? step.path : step.source, mount);
  }
  int result = put(mount, (set & ~present) == 0 ? 0 : set, kAtRecursive);
  return result >= 0 || failure_.at("mount and protect", step.path, result);
}

bool RootBuilder::attach_tmpfs(const MountStep& step) {
  source_.set(step.source);
  return attach(step, open_tree(built_.tmpfs[step.slot], source_.c_str(), kCloneTree),
                attributes_of(step), kTmpfsAttributes);
}

bool RootBuilder::bind(const MountStep& step) {
  source_.set(step.source);
  int mount = open_tree(AT_FDCWD, source_.c_str(), kCloneTree | kNoFollow | kAtRecursive);
  if (mount == -ENOENT && (step.flags & protocol::kStepOptional) != 0) {
    return true;
  }
  if (!make_target(step)) {
    return false;
  }
  return attach(step, mount, attributes_of(step) | kAttrNoDev, 0);
}

// CRITICAL: the node is checked on the descriptor that is mounted, so a planted file or another
// device cannot take its place.
bool RootBuilder::bind_device(const MountStep& step) {
  source_.set(step.source);
  int mount = open_tree(AT_FDCWD, source_.c_str(), kCloneTree | kNoFollow);
  if (mount >= 0 && !is_device(mount, static_cast<dev_t>(step.size))) {
    close(mount);
    return failure_.at("check device", step.source, -ENODEV);
  }
  return make_target(step) && attach(step, mount, attributes_of(step), 0);
}

bool RootBuilder::mount_proc(const MountStep& step) {
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
  if (in_machine) {
    built_.vmstat = openat(mount, "vmstat", O_RDONLY | O_CLOEXEC);
  }
  built_.proc_sys_user = openat(mount, "sys/user", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (built_.tmpfs[kGuestSlot] >= 0) {
    built_.loadavg = openat(mount, "loadavg", O_RDONLY | O_CLOEXEC);
  }
  return make_target(step) && attach(step, mount, 0, 0);
}

bool RootBuilder::mount_devpts(const MountStep& step) {
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
int RootBuilder::make_text(std::uint8_t slot, std::string_view path, std::string_view content) {
  int directory = built_.tmpfs[slot];
  Text<32> name;
  name.add("text").add_number(texts_++);
  int file = openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
  bool written = file >= 0 && write_whole(file, content);
  int result = written ? 0 : -errno;
  if (result == 0 && ahead_ == Ahead::kBuilding) {
    result = keep_file(path, file);
  } else if (file >= 0) {
    close(file);
  }
  return result < 0 ? result : open_tree(directory, name.c_str(), kCloneTree);
}

bool RootBuilder::replace_file(const MountStep& step) {
  if (const Replaced* before = find_replaced(step.path); before != nullptr) {
    return rewrite(*before, step);
  }
  if ((step.flags & protocol::kStepIsFile) != 0 && !make_target(step)) {
    return false;
  }
  int text = make_text(step.slot, step.path, step.source);
  int result = text < 0 ? text : put(text, kCoverAttributes, 0);
  return result >= 0 || result == -ENOENT || failure_.at("replace", step.path, result);
}

// Hides a file or a directory behind an empty one that nobody can write to (/dev/null would take
// what is written). The first cover is prepared, the others are clones of it as it is mounted.
bool RootBuilder::mask(const MountStep& step) {
  if ((step.flags & protocol::kStepOptional) != 0) {
    struct stat info{};
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

int RootBuilder::make_cover(const MountStep& step, Cover& cover) {
  if (cover.mounted >= 0) {
    cover.next = open_tree(cover.mounted, "", kCloneTree | kAtEmptyPath);
    return cover.next;
  }
  source_.set(step.source);
  cover.next = open_tree(tree_.root(), source_.c_str(), kCloneTree | kNoFollow);
  return cover.next < 0 ? cover.next : protect(cover.next, kCoverAttributes, 0);
}

bool RootBuilder::make_read_only(const MountStep& step) {
  int mount = tree_.clone();
  if (mount == -ENOENT) {
    return true;
  }
  int result = mount < 0 ? mount : put(mount, kAttrReadOnly, kAtRecursive);
  return result >= 0 || failure_.at("make read-only", step.path, result);
}

bool RootBuilder::mount_overlay(const MountStep& step) {
  // The layers are named through descriptors, so no byte of a path can be read as an option.
  int slot = built_.tmpfs[step.slot];
  const bool there = step.source.empty();
  source_.set(there ? step.path : step.source);
  int lower = openat(there ? tree_.root() : AT_FDCWD, source_.c_str(),
                     O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lower < 0) {
    return failure_.at("open", there ? step.path : step.source, -errno);
  }
  Text<24> upper_name;
  upper_name.add("upper").add_number(overlays_);
  Text<24> work_name;
  work_name.add("work").add_number(overlays_);
  ++overlays_;
  if (mkdirat(slot, upper_name.c_str(), 0755) != 0 || mkdirat(slot, work_name.c_str(), 0700) != 0) {
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
    return failure_.at("mount an overlay of", there ? step.path : step.source, mount);
  }
  if (step.path.empty()) {  // the root itself
    return replace_root(step, mount);
  }
  return (there || make_target(step)) && attach(step, mount, attributes_of(step), kTmpfsAttributes);
}

// From here on the plan builds on `mount` instead of on the empty tmpfs.
bool RootBuilder::replace_root(const MountStep& step, int mount) {
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

}  // namespace carrel::guest
