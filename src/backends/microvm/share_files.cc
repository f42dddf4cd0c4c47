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

// A request that is this and nothing more.
template <typename Wanted>
bool take_whole(const FuseRequest& request, Wanted& wanted) {
  FuseBody body(request.body);
  return body.take(wanted) && body.at_end();
}

}  // namespace

int Share::opened(std::uint64_t number, FuseReply& reply) const {
  const Handle* const open = handle(number);
  if (open == nullptr) {
    reply.fail(EBADF);
    return -1;
  }
  return open->file.get();
}

void Share::tell_opened(UniqueFd file, std::uint64_t node, FuseReply& reply) {
  fuse_open_out told{};
  told.fh = file.valid() ? keep(std::move(file), node) : 0;
  if (told.fh == 0 && reply.error() == 0) {
    reply.fail(ENFILE);
  }
  reply.put(told);
}

bool Share::open(const FuseRequest& request, FuseReply& reply) {
  fuse_open_in wanted{};
  if (!take_whole(request, wanted)) {
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
  tell_opened(reopen(file.get(), static_cast<int>(wanted.flags & kFlags), reply), request.node,
              reply);
  return true;
}

bool Share::open_folder(const FuseRequest& request, FuseReply& reply) {
  fuse_open_in wanted{};
  if (!take_whole(request, wanted)) {
    return false;
  }
  const UniqueFd file = find(request.node, reply);
  if (!file.valid()) {
    return true;
  }
  tell_opened(reopen(file.get(), O_RDONLY | O_DIRECTORY, reply), request.node, reply);
  return true;
}

bool Share::release(const FuseRequest& request, FuseReply&) {
  fuse_release_in wanted{};
  if (!take_whole(request, wanted)) {
    return false;
  }
  handles_.erase(wanted.fh);
  return true;
}

bool Share::read(const FuseRequest& request, FuseReply& reply) {
  fuse_read_in wanted{};
  if (!take_whole(request, wanted) || wanted.size > kFuseData) {
    return false;
  }
  const int file = opened(wanted.fh, reply);
  if (file < 0) {
    return true;
  }
  char* const room = reply.extend(wanted.size);
  std::size_t got = 0;
  while (got < wanted.size) {
    const ssize_t n =
        ::pread(file, room + got, wanted.size - got, static_cast<off_t>(wanted.offset + got));
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
  const int file = opened(wanted.fh, reply);
  if (file < 0) {
    return true;
  }
  fuse_write_out told{};
  while (told.size < wanted.size) {
    const ssize_t n = ::pwrite(file, body.rest().data() + told.size, wanted.size - told.size,
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
  if (!take_whole(request, wanted) || wanted.size > kFuseData) {
    return false;
  }
  const int file = opened(wanted.fh, reply);
  if (file < 0) {
    return true;
  }
  if (::lseek(file, static_cast<off_t>(wanted.offset), SEEK_SET) < 0) {
    reply.fail(errno);
    return true;
  }
  alignas(std::uint64_t) std::array<char, 32U << 10> buffer;
  for (;;) {
    const long n = ::syscall(SYS_getdents64, file, buffer.data(), buffer.size());
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
  if (!take_whole(request, wanted)) {
    return false;
  }
  const int file = opened(wanted.fh, reply);
  if (file < 0) {
    return true;
  }
  const bool data_only = (wanted.fsync_flags & FUSE_FSYNC_FDATASYNC) != 0;
  const int result = data_only ? ::fdatasync(file) : ::fsync(file);
  reply.fail(result == 0 ? 0 : errno);
  return true;
}

bool Share::reserve(const FuseRequest& request, FuseReply& reply) {
  fuse_fallocate_in wanted{};
  if (!take_whole(request, wanted)) {
    return false;
  }
  constexpr std::uint32_t kKinds =
      FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
  const int file = opened(wanted.fh, reply);
  if (file < 0) {
    return true;
  }
  if ((wanted.mode & ~kKinds) != 0) {
    reply.fail(EOPNOTSUPP);
    return true;
  }
  const int result =
      ::fallocate(file, static_cast<int>(wanted.mode), static_cast<off_t>(wanted.offset),
                  static_cast<off_t>(wanted.length));
  reply.fail(result == 0 ? 0 : errno);
  return true;
}

bool Share::seek(const FuseRequest& request, FuseReply& reply) {
  fuse_lseek_in wanted{};
  if (!take_whole(request, wanted)) {
    return false;
  }
  const int file = opened(wanted.fh, reply);
  if (file < 0) {
    return true;
  }
  if (wanted.whence != SEEK_DATA && wanted.whence != SEEK_HOLE) {
    reply.fail(EINVAL);
    return true;
  }
  const off_t at =
      ::lseek(file, static_cast<off_t>(wanted.offset), static_cast<int>(wanted.whence));
  if (at < 0) {
    reply.fail(errno);
  }
  fuse_lseek_out told{};
  told.offset = static_cast<std::uint64_t>(at);
  reply.put(told);
  return true;
}

}  // namespace carrel::microvm
