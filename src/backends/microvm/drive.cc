#include "backends/microvm/drive.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "backends/microvm/jail.h"
#include "base/files.h"
#include "kernel/uapi/mount.h"

namespace carrel::microvm {

namespace {

constexpr char kDevice[] = "/dev/fuse";
constexpr std::uint32_t kLargestRead = 128U << 10;
constexpr std::uint64_t kBlock = 4096;
constexpr std::uint64_t kForEver = 1U << 30;  // seconds: nothing about the file changes

void tell_version(const FuseRequest& request, FuseReply& reply) {
  constexpr std::uint32_t kOldest = 31;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  FuseBody body(request.body);  // which begins with them, whatever newer kernels add
  if (!body.take(major) || !body.take(minor) || major != FUSE_KERNEL_VERSION || minor < kOldest) {
    return reply.fail(EPROTO);
  }
  fuse_init_out told{};
  told.major = FUSE_KERNEL_VERSION;
  told.minor = kOldest;
  told.max_write = kBlock;
  told.time_gran = 1;
  reply.put(told);
}

void tell_facts(const Blocks& blocks, FuseReply& reply) {
  fuse_attr_out told{};
  told.attr_valid = kForEver;
  told.attr.ino = FUSE_ROOT_ID;
  told.attr.size = blocks.size();
  told.attr.blocks = blocks.size() / 512;
  told.attr.mode = S_IFREG | 0444;
  told.attr.nlink = 1;
  told.attr.uid = kJailId;
  told.attr.gid = kJailId;
  told.attr.blksize = kBlock;
  reply.put(told);
}

void open_file(const FuseRequest& request, FuseReply& reply) {
  fuse_open_in asked{};
  FuseBody body(request.body);
  if (!body.take(asked)) {
    return reply.fail(EINVAL);
  }
  if ((asked.flags & O_ACCMODE) != O_RDONLY) {
    return reply.fail(EROFS);
  }
  // The machine's kernel remembers what it has read, and the host's what the files hold.
  fuse_open_out told{};
  told.open_flags = FOPEN_DIRECT_IO;
  reply.put(told);
}

void read_file(const FuseRequest& request, Blocks& blocks, FuseReply& reply) {
  fuse_read_in asked{};
  FuseBody body(request.body);
  // CRITICAL: nothing but what is on the device, and in pieces of a bounded size.
  if (!body.take(asked) || asked.size > kLargestRead) {
    return reply.fail(EINVAL);
  }
  if (asked.offset >= blocks.size()) {
    return;
  }
  const std::uint64_t size = std::min<std::uint64_t>(asked.size, blocks.size() - asked.offset);
  const std::uint64_t first = asked.offset / kBlock * kBlock;
  const std::uint64_t past = (asked.offset + size + kBlock - 1) / kBlock * kBlock;
  std::vector<char> buffer(past - first);
  if (!blocks.read(first, buffer)) {
    return reply.fail(EIO);
  }
  reply.put_bytes({buffer.data() + (asked.offset - first), size});
}

}  // namespace

Status check_drives() {
  struct stat info{};
  const bool there = ::stat(kDevice, &info) == 0;
  constexpr mode_t kOthers = S_IROTH | S_IWOTH;
  if (!there || (::geteuid() == 0 ? (info.st_mode & kOthers) != kOthers
                                  : ::access(kDevice, R_OK | W_OK) != 0)) {
    return Error{Code::kUnsupported, 0,
                 there ? std::string("the user of a machine may not use ") + kDevice
                       : std::string("there is no ") + kDevice,
                 there ? std::string("chmod 666 ") + kDevice : std::string("modprobe fuse")};
  }
  return {};
}

Result<UniqueFd> open_drive() { return open_at(AT_FDCWD, kDevice, O_RDWR); }

Status mount_drive(int device, const std::string& place) {
  const UniqueFd context(static_cast<int>(::syscall(SYS_fsopen, "fuse", FSOPEN_CLOEXEC)));
  const auto set = [&](const char* name, const std::string& value) {
    return ::syscall(SYS_fsconfig, context.get(), FSCONFIG_SET_STRING, name, value.c_str(), 0) == 0;
  };
  if (!context.valid() || !set("source", "carrel") || !set("fd", std::to_string(device)) ||
      !set("rootmode", "100000") || !set("user_id", std::to_string(::geteuid())) ||
      !set("group_id", std::to_string(::getegid())) ||
      !set("max_read", std::to_string(kLargestRead)) ||
      ::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return system_error("make a drive of FUSE");
  }
  constexpr std::uint64_t kAttributes = kernel::uapi::kAttrReadOnly | kernel::uapi::kAttrNoSuid |
                                        kernel::uapi::kAttrNoDev | kernel::uapi::kAttrNoExec;
  const UniqueFd mount(
      static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, kAttributes)));
  if (!mount.valid() || ::syscall(SYS_move_mount, mount.get(), "", AT_FDCWD, place.c_str(),
                                  MOVE_MOUNT_F_EMPTY_PATH) != 0) {
    return system_error("mount a drive at " + place);
  }
  return {};
}

void answer_drive(const FuseRequest& request, Blocks& blocks, FuseReply& reply) {
  switch (request.opcode) {
    case FUSE_INIT:
      return tell_version(request, reply);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      return reply.be_silent();
    default:
      break;
  }
  if (request.node != FUSE_ROOT_ID) {
    return reply.fail(ENOENT);
  }
  switch (request.opcode) {
    case FUSE_GETATTR:
      return tell_facts(blocks, reply);
    case FUSE_OPEN:
      return open_file(request, reply);
    case FUSE_READ:
      return read_file(request, blocks, reply);
    case FUSE_RELEASE:
      return;
    default:
      return reply.fail(ENOSYS);
  }
}

void serve_drive(int device, Blocks& blocks) {
  std::vector<char> message(kLargestFuse);
  for (;;) {
    const ssize_t size = ::read(device, message.data(), message.size());
    if (size < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) {
      continue;  // ENOENT: whoever asked has not waited
    }
    FuseRequest request;
    if (size <= 0 || !parse_fuse({message.data(), static_cast<std::size_t>(size)}, request)) {
      return;
    }
    FuseReply reply;
    answer_drive(request, blocks, reply);
    if (!reply.is_silent()) {
      const std::string answer = reply.encode(request.unique);
      // Nobody may wait for it any more.
      if (::write(device, answer.data(), answer.size()) < 0 && errno != ENOENT && errno != EINTR) {
        return;
      }
    }
  }
}

}  // namespace carrel::microvm
