#include "kernel/image_mount.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/unix_socket.h"
#include "kernel/uapi/mount.h"

namespace carrel::kernel {

namespace {

constexpr int kRounds = 200;
constexpr unsigned kPauseUs = 10'000;

struct LoopDevice {
  UniqueFd fd;  // keeps it from ending
  std::string path;
};

std::string path_of(unsigned number) { return "/dev/loop" + std::to_string(number); }

// The number in "loop7".
std::optional<unsigned> number_in(std::string_view name) {
  constexpr std::string_view kPrefix = "loop";
  unsigned number = 0;
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number)
                                                                  : std::nullopt;
}

// Calls `look` with each device that has a file, and what it has, until that returns false.
template <typename Look>
Status for_each_device(const Look& look) {
  CARREL_ASSIGN(DirectoryEntries entries, DirectoryEntries::open_at(AT_FDCWD, "/sys/block"));
  while (const dirent* entry = entries.next()) {
    const std::optional<unsigned> number = number_in(entry->d_name);
    const std::string bound = std::string(entry->d_name) + "/loop";
    if (!number.has_value() || ::faccessat(entries.descriptor(), bound.c_str(), F_OK, 0) != 0) {
      continue;
    }
    LoopDevice device{UniqueFd(::open(path_of(*number).c_str(), O_RDONLY | O_CLOEXEC)),
                      path_of(*number)};
    loop_info64 info{};
    if (device.fd.valid() && ::ioctl(device.fd.get(), LOOP_GET_STATUS64, &info) == 0 &&
        !look(device, info)) {
      return {};
    }
  }
  return entries.failure();
}

// The device that has the file already. CRITICAL: with two devices one file would be two file
// systems, which destroy each other.
Result<std::optional<LoopDevice>> find_device(const struct stat& file) {
  std::optional<LoopDevice> found;
  CARREL_TRY(for_each_device([&](LoopDevice& device, const loop_info64& info) {
    if (info.lo_device == file.st_dev && info.lo_inode == file.st_ino) {
      found = std::move(device);
    }
    return !found.has_value();
  }));
  return found;
}

Result<LoopDevice> make_device(int file) {
  CARREL_ASSIGN(const UniqueFd control, open_at(AT_FDCWD, "/dev/loop-control", O_RDWR));
  for (int round = 0; round < kRounds; ++round) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) {
      return system_error("find a loop device");
    }
    CARREL_ASSIGN(UniqueFd device,
                  open_at(AT_FDCWD, path_of(static_cast<unsigned>(number)), O_RDWR));
    loop_config wanted{};
    wanted.fd = static_cast<unsigned>(file);
    wanted.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    if (::ioctl(device.get(), LOOP_CONFIGURE, &wanted) == 0) {
      return LoopDevice{std::move(device), path_of(static_cast<unsigned>(number))};
    }
    if (errno != EBUSY) {  // else somebody was faster
      return system_error("set up a loop device");
    }
  }
  return Error{Code::kResource, EBUSY, "find a loop device", {}};
}

Result<UniqueFd> mount_device(const std::string& device) {
  UniqueFd context(static_cast<int>(::syscall(SYS_fsopen, "ext4", FSOPEN_CLOEXEC)));
  if (!context.valid()) {
    return system_error("use ext4");
  }
  const auto set = [&](const char* name, const char* value) {
    return ::syscall(SYS_fsconfig, context.get(),
                     value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING, name, value, 0);
  };
  // What has no inodes yet is zero already: nobody has to write that in the background. Data that
  // the host has no room for must not be missed in silence.
  if (set("source", device.c_str()) != 0 || set("errors", "remount-ro") != 0 ||
      set("data_err", "abort") != 0 || set("noinit_itable", nullptr) != 0 ||
      ::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return system_error("mount a file system of a workspace's own");
  }
  UniqueFd mount(static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC,
                                            uapi::kAttrNoDev | uapi::kAttrNoSuid)));
  if (!mount.valid()) {
    return system_error("mount a file system of a workspace's own");
  }
  return mount;
}

// In a process of its own: parts of a mount can be had only where it is in a table.
Result<UniqueFd> split_here(int mount, const std::string& name) {
  if (::unshare(CLONE_NEWNS) != 0) {
    return system_error("make a mount namespace");
  }
  // CRITICAL: nothing that is mounted here may appear outside.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::syscall(SYS_move_mount, mount, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return system_error("put a mount somewhere");
  }
  UniqueFd part(static_cast<int>(
      ::syscall(SYS_open_tree, mount, name.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
  if (!part.valid()) {
    return system_error("copy a part of a mount");
  }
  return part;
}

}  // namespace

Result<UniqueFd> mount_image(int directory, const std::string& name) {
  // Two descriptors: a device keeps its own, and would keep a lock with it.
  CARREL_ASSIGN(const UniqueFd locked, open_at(directory, name, O_RDONLY | O_NOFOLLOW));
  while (::flock(locked.get(), LOCK_EX) != 0) {
    if (errno != EINTR) {
      return system_error("lock '" + name + "'");
    }
  }
  CARREL_ASSIGN(const UniqueFd file, open_at(directory, name, O_RDWR | O_NOFOLLOW));
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) {
    return system_error("look at '" + name + "'");
  }
  Result<UniqueFd> mount = Error{};
  for (int round = 0; round < kRounds; ++round) {
    CARREL_ASSIGN(std::optional<LoopDevice> device, find_device(info));
    if (!device.has_value()) {
      CARREL_ASSIGN(device, make_device(file.get()));
    }
    mount = mount_device(device->path);
    // Somebody may just be ending it.
    if (mount.ok() || mount.error().error_number != EBUSY) {
      break;
    }
    ::usleep(kPauseUs);
  }
  return mount;
}

Result<std::vector<BoundImage>> bound_images() {
  std::vector<BoundImage> images;
  CARREL_TRY(for_each_device([&](const LoopDevice& device, const loop_info64& info) {
    images.push_back({info.lo_device, info.lo_inode, device.path.substr(sizeof "/dev/" - 1)});
    return true;
  }));
  return images;
}

Result<UniqueFd> split_mount(UniqueFd mount, const std::string& name) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return system_error("copy a part of a mount");
  }
  const UniqueFd here(ends[0]);
  UniqueFd there(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    return system_error("copy a part of a mount");
  }
  if (child == 0) {
    const auto part = split_here(mount.get(), name);
    const std::array<int, 1> descriptors = {part.ok() ? part.value().get() : -1};
    (void)send_with(there.get(), part.ok() ? "+" : part.error().to_string(),
                    std::span(descriptors).first(part.ok() ? 1 : 0), 0);
    ::_exit(0);
  }
  there.reset();
  std::array<char, 256> text{};
  std::vector<UniqueFd> descriptors;
  const ssize_t n = receive_with(here.get(), text, descriptors, 0);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (n == 1 && descriptors.size() == 1) {
    return std::move(descriptors[0]);
  }
  return Error{
      Code::kUnsupported,
      0,
      n > 0 ? std::string(text.data(), static_cast<std::size_t>(n)) : "copy a part of a mount",
      {}};
}

}  // namespace carrel::kernel
