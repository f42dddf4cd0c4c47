#include "backends/native/overlay.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/unix_socket.h"
#include "kernel/detached_mount.h"
#include "kernel/uapi/mount.h"

namespace carrel::native {

namespace {

// An ordinary user is nobody's root but his own.
Status enter_namespaces() {
  const std::string user = std::to_string(::geteuid());
  const std::string group = std::to_string(::getegid());
  const bool root = ::geteuid() == 0;
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // else the maps are root's
  if (::unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWUSER)) != 0) {
    return system_error("make namespaces");
  }
  if (!root) {
    CARREL_TRY(write_value_at(AT_FDCWD, "/proc/self/setgroups", "deny"));
    CARREL_TRY(write_value_at(AT_FDCWD, "/proc/self/gid_map", group + " " + group + " 1"));
    CARREL_TRY(write_value_at(AT_FDCWD, "/proc/self/uid_map", user + " " + user + " 1"));
  }
  // CRITICAL: nothing that is mounted here may appear outside.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return system_error("separate from the host's mounts");
  }
  return {};
}

// Covers a directory with itself, in which the owner is the sandbox's user.
Status map_directory(const std::string& path, const GivenTree::Owner& owner, std::uint32_t id) {
  CARREL_ASSIGN(const UniqueFd place, open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_NOFOLLOW));
  CARREL_ASSIGN(const UniqueFd copy, kernel::copy_mounts(place.get()));
  CARREL_TRY(
      kernel::map_owners(copy.get(), {{owner.user, id}, {owner.group, id}}, kernel::Depth::kTop));
  if (::syscall(SYS_move_mount, copy.get(), "", AT_FDCWD, path.c_str(), MOVE_MOUNT_F_EMPTY_PATH) !=
      0) {
    return system_error("cover '" + path + "'");
  }
  return {};
}

// An overlay makes files of its own as whoever mounted it, and root can own nothing in directories
// in which only the sandbox's user is somebody.
Status make_files_as(std::uint32_t id) {
  if (::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) != 0) {
    return system_error("keep the rights of root");
  }
  ::setfsgid(id);
  ::setfsuid(id);
  return {};
}

// In a process of its own. Paths in mount options are relative, so that nobody inside reads where
// the host has them.
Result<UniqueFd> make_here(const GivenTree& tree, std::uint32_t id) {
  const GivenTree::Overlay& overlay = *tree.overlay;
  CARREL_TRY(enter_namespaces());
  if (::chdir(overlay.top.c_str()) != 0) {
    return system_error("enter '" + overlay.top + "'");
  }
  if (tree.standing == GivenTree::Standing::kNowhere &&
      ::syscall(SYS_move_mount, tree.source.get(), "", AT_FDCWD, overlay.mount.c_str(),
                MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return system_error("mount the file system of a workspace");
  }
  if (::geteuid() == 0) {
    for (const std::string& layer : overlay.layers) {
      CARREL_TRY(map_directory(layer, tree.owner, id));
    }
    // CRITICAL: upper and work directory have to be on one mount.
    CARREL_TRY(map_directory(overlay.upper.substr(0, overlay.upper.rfind('/')), tree.owner, id));
    CARREL_TRY(make_files_as(id));
  }
  std::string options = "userxattr,upperdir=" + overlay.upper + ",workdir=" + overlay.work;
  std::string lower;
  for (const std::string& layer : overlay.layers) {  // the highest comes first here
    lower.insert(0, lower.empty() ? layer : layer + ":");
  }
  options += ",lowerdir=" + lower;
  if (options.size() >= 4000) {
    return Error{Code::kResource, 0, "stack so many layers", {}};
  }
  if (::mount("workspace", overlay.place.c_str(), "overlay", MS_NOSUID | MS_NODEV,
              options.c_str()) != 0) {
    return system_error("mount an overlay");
  }
  struct statvfs info{};
  if (::statvfs(overlay.place.c_str(), &info) != 0 || (info.f_flag & ST_RDONLY) != 0) {
    return Error{Code::kUnsupported, 0, "write to an overlay here", {}};
  }
  UniqueFd mount(static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, overlay.place.c_str(),
                                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!mount.valid()) {
    return system_error("keep an overlay");
  }
  return mount;
}

// The whole of what the process has to say: an error, or nothing with the descriptor.
[[noreturn]] void answer(int socket, const Result<UniqueFd>& made) {
  const int fd = made.ok() ? made.value().get() : -1;
  const std::string text = made.ok() ? "+" : "-" + made.error().to_string();
  const std::array<int, 1> descriptors = {fd};
  (void)send_with(socket, text,
                  made.ok() ? std::span<const int>(descriptors) : std::span<const int>(), 0);
  ::_exit(0);
}

}  // namespace

Result<UniqueFd> make_overlay(const GivenTree& tree, std::uint32_t id) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error("make an overlay");
  }
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    return system_error("make an overlay");
  }
  if (child == 0) {
    answer(there.get(), make_here(tree, id));
  }
  there.reset();
  std::array<char, 1024> text{};
  std::vector<UniqueFd> descriptors;
  const ssize_t n = receive_with(here.get(), text, descriptors, 0);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (n == 1 && text[0] == '+' && descriptors.size() == 1) {
    return std::move(descriptors[0]);
  }
  return Error{
      Code::kUnsupported, 0,
      n > 1 ? std::string(text.data() + 1, static_cast<std::size_t>(n - 1)) : "make an overlay",
      "run 'carrel doctor'"};
}

}  // namespace carrel::native
