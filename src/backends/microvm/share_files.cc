// What is open in a share.
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "backends/microvm/share.h"

namespace carrel::microvm {

namespace {

// What getdents64 fills a buffer with, up to the name.
struct EntryHead {
  std::uint64_t inode;
  std::int64_t next;
  std::uint16_t size;
  std::uint8_t kind;
} __attribute__((packed));
constexpr std::size_t kNameAt = offsetof(EntryHead, kind) + 1;

}  // namespace

bool Share::open(const FuseRequest& request, FuseReply& reply) {
  fuse_open_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  if (!may_open(wanted.flags)) {
    reply.fail(EROFS);
    return true;
  }
  const UniqueFd file = find(request.node, reply);
  if (!file.valid()) {
    return true;
  }
  struct statx facts{};
  reply.fail(look_at(file.get(), facts));
  // CRITICAL: nothing but a file is opened: a pipe or a device of the host's could do anything.
  if (reply.error() == 0 && !S_ISREG(facts.stx_mode)) {
    reply.fail(EINVAL);
  }
  if (reply.error() != 0) {
    return true;
  }
  // Where something is appended is the machine's kernel's to say, as it writes its pages back, too.
  constexpr std::uint32_t kFlags = O_ACCMODE | O_TRUNC;
  UniqueFd opened = reopen(file.get(), static_cast<int>(wanted.flags & kFlags), reply);
  fuse_open_out told{};
  told.fh = opened.valid() ? keep(std::move(opened), request.node) : 0;
  if (told.fh == 0 && reply.error() == 0) {
    reply.fail(ENFILE);
  }
  reply.put(told);
  return true;
}

bool Share::open_folder(const FuseRequest& request, FuseReply& reply) {
  fuse_open_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  const UniqueFd file = find(request.node, reply);
  if (!file.valid()) {
    return true;
  }
  UniqueFd opened = reopen(file.get(), O_RDONLY | O_DIRECTORY, reply);
  fuse_open_out told{};
  told.fh = opened.valid() ? keep(std::move(opened), request.node) : 0;
  if (told.fh == 0 && reply.error() == 0) {
    reply.fail(ENFILE);
  }
  reply.put(told);
  return true;
}

bool Share::release(const FuseRequest& request, FuseReply&) {
  fuse_release_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  handles_.erase(wanted.fh);
  return true;
}

bool Share::read(const FuseRequest& request, FuseReply& reply) {
  fuse_read_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end() || wanted.size > kFuseData) {
    return false;
  }
  const Handle* const open = handle(wanted.fh);
  if (open == nullptr) {
    reply.fail(EBADF);
    return true;
  }
  char* const room = reply.extend(wanted.size);
  std::size_t got = 0;
  while (got < wanted.size) {
    const ssize_t n = ::pread(open->file.get(), room + got, wanted.size - got,
                              static_cast<off_t>(wanted.offset + got));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && got == 0) {
      reply.fail(errno);
    }
    if (n <= 0) {
      break;
    }
    got += static_cast<std::size_t>(n);
  }
  reply.cut(got);
  return true;
}

bool Share::write(const FuseRequest& request, FuseReply& reply) {
  fuse_write_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || wanted.size != body.rest().size() || wanted.size > kFuseData) {
    return false;
  }
  const Handle* const open = handle(wanted.fh);
  if (open == nullptr) {
    reply.fail(EBADF);
    return true;
  }
  fuse_write_out told{};
  while (told.size < wanted.size) {
    const ssize_t n =
        ::pwrite(open->file.get(), body.rest().data() + told.size, wanted.size - told.size,
                 static_cast<off_t>(wanted.offset + told.size));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0 && told.size == 0) {
      reply.fail(errno);
    }
    if (n <= 0) {
      break;
    }
    told.size += static_cast<std::uint32_t>(n);
  }
  reply.put(told);
  return true;
}

bool Share::list(const FuseRequest& request, FuseReply& reply) {
  fuse_read_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end() || wanted.size > kFuseData) {
    return false;
  }
  const Handle* const open = handle(wanted.fh);
  if (open == nullptr ||
      ::lseek(open->file.get(), static_cast<off_t>(wanted.offset), SEEK_SET) < 0) {
    reply.fail(open == nullptr ? EBADF : errno);
    return true;
  }
  alignas(std::uint64_t) std::array<char, 32U << 10> buffer;
  for (;;) {
    const long n = ::syscall(SYS_getdents64, open->file.get(), buffer.data(), buffer.size());
    if (n < 0 && reply.size() == 0) {
      reply.fail(errno);
    }
    if (n <= 0) {
      return true;
    }
    for (std::size_t at = 0; at < static_cast<std::size_t>(n);) {
      EntryHead head{};
      std::memcpy(&head, buffer.data() + at, sizeof head);
      const std::string_view name(buffer.data() + at + kNameAt);
      at += head.size;
      fuse_dirent told{};
      const std::size_t whole = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + name.size());
      if (reply.size() + whole > wanted.size) {
        return true;
      }
      told.ino = head.inode;
      told.off = static_cast<std::uint64_t>(head.next);
      told.namelen = static_cast<std::uint32_t>(name.size());
      told.type = head.kind;
      const std::size_t begin = reply.size();
      reply.put_bytes({reinterpret_cast<const char*>(&told), FUSE_NAME_OFFSET});
      reply.put_bytes(name);
      (void)reply.extend(begin + whole - reply.size());
    }
  }
}

bool Share::sync(const FuseRequest& request, FuseReply& reply) {
  fuse_fsync_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  const Handle* const open = handle(wanted.fh);
  if (open == nullptr) {
    reply.fail(EBADF);
    return true;
  }
  const bool data_only = (wanted.fsync_flags & FUSE_FSYNC_FDATASYNC) != 0;
  const int result = data_only ? ::fdatasync(open->file.get()) : ::fsync(open->file.get());
  reply.fail(result == 0 ? 0 : errno);
  return true;
}

bool Share::reserve(const FuseRequest& request, FuseReply& reply) {
  fuse_fallocate_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  constexpr std::uint32_t kKinds =
      FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  const Handle* const open = handle(wanted.fh);
  if (open == nullptr || (wanted.mode & ~kKinds) != 0) {
    reply.fail(open == nullptr ? EBADF : EOPNOTSUPP);
    return true;
  }
  const int result =
      ::fallocate(open->file.get(), static_cast<int>(wanted.mode),
                  static_cast<off_t>(wanted.offset), static_cast<off_t>(wanted.length));
  reply.fail(result == 0 ? 0 : errno);
  return true;
}

bool Share::seek(const FuseRequest& request, FuseReply& reply) {
  fuse_lseek_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  const Handle* const open = handle(wanted.fh);
  if (open == nullptr || (wanted.whence != SEEK_DATA && wanted.whence != SEEK_HOLE)) {
    reply.fail(open == nullptr ? EBADF : EINVAL);
    return true;
  }
  const off_t at =
      ::lseek(open->file.get(), static_cast<off_t>(wanted.offset), static_cast<int>(wanted.whence));
  if (at < 0) {
    reply.fail(errno);
  }
  fuse_lseek_out told{};
  told.offset = static_cast<std::uint64_t>(at);
  reply.put(told);
  return true;
}

}  // namespace carrel::microvm
