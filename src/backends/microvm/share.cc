#include "backends/microvm/share.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "guest/contained.h"

namespace carrel::microvm {

namespace {

constexpr std::uint32_t kNobody = 65534;
constexpr std::uint32_t kSetId = S_ISUID | S_ISGID;
constexpr std::uint32_t kModes = 07777;

std::uint32_t owner_for_machine(std::uint32_t id, std::uint32_t own) {
  return id == own ? guest::kInnerId : kNobody;
}

timespec time_of(std::uint64_t seconds, std::uint32_t nanoseconds) {
  return {static_cast<time_t>(seconds), static_cast<long>(nanoseconds)};
}

// Which time a request sets: none, the present one or a given one.
timespec wanted_time(std::uint32_t valid, std::uint32_t set, std::uint32_t now, timespec given) {
  if ((valid & set) == 0) {
    given.tv_nsec = UTIME_OMIT;
  } else if ((valid & now) != 0) {
    given.tv_nsec = UTIME_NOW;
  }
  return given;
}

// Whatever could change something.
bool is_change(std::uint32_t opcode) {
  switch (opcode) {
    case FUSE_SETATTR:
    case FUSE_SYMLINK:
    case FUSE_MKNOD:
    case FUSE_MKDIR:
    case FUSE_CREATE:
    case FUSE_LINK:
    case FUSE_UNLINK:
    case FUSE_RMDIR:
    case FUSE_RENAME:
    case FUSE_RENAME2:
    case FUSE_WRITE:
    case FUSE_FALLOCATE:
    case FUSE_SETXATTR:
    case FUSE_REMOVEXATTR:
      return true;
    default:
      return false;
  }
}

// What may be asked about a file that is hidden: for the mount that covers it.
bool is_about_facts(std::uint32_t opcode) {
  return opcode == FUSE_GETATTR || opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET ||
         opcode == FUSE_INTERRUPT || opcode == FUSE_STATFS;
}

bool are_times(const fuse_setattr_in& wanted) {
  constexpr std::uint32_t kSecond = 1'000'000'000;
  return wanted.atimensec < kSecond && wanted.mtimensec < kSecond;
}

}  // namespace

fuse_attr facts_for_machine(const struct statx& facts) {
  fuse_attr told{};
  told.ino = facts.stx_ino;
  told.size = facts.stx_size;
  told.blocks = facts.stx_blocks;
  told.atime = static_cast<std::uint64_t>(facts.stx_atime.tv_sec);
  told.mtime = static_cast<std::uint64_t>(facts.stx_mtime.tv_sec);
  told.ctime = static_cast<std::uint64_t>(facts.stx_ctime.tv_sec);
  told.atimensec = facts.stx_atime.tv_nsec;
  told.mtimensec = facts.stx_mtime.tv_nsec;
  told.ctimensec = facts.stx_ctime.tv_nsec;
  told.mode = facts.stx_mode;
  told.nlink = facts.stx_nlink;
  told.uid = owner_for_machine(facts.stx_uid, ::geteuid());
  told.gid = owner_for_machine(facts.stx_gid, ::getegid());
  told.blksize = facts.stx_blksize;
  return told;
}

Share::Share(UniqueFd top, ShareMode mode, int descriptors, ShareBounds bounds)
    : nodes_(std::move(top), bounds.files),
      mode_(mode),
      descriptors_(descriptors),
      bounds_(bounds) {}

Share::Method Share::method_of(std::uint32_t opcode) {
  static const std::map<std::uint32_t, Method> kMethods = {
      {FUSE_INIT, &Share::init},
      {FUSE_DESTROY, &Share::finish},
      {FUSE_FORGET, &Share::forget},
      {FUSE_BATCH_FORGET, &Share::forget_many},
      {FUSE_INTERRUPT, &Share::ignore},
      {FUSE_GETATTR, &Share::get_facts},
      {FUSE_SETATTR, &Share::set_facts},
      {FUSE_STATFS, &Share::tell_room},
      {FUSE_LOOKUP, &Share::look_up},
      {FUSE_READLINK, &Share::read_link},
      {FUSE_SYMLINK, &Share::make_link},
      {FUSE_MKNOD, &Share::make_special},
      {FUSE_MKDIR, &Share::make_folder},
      {FUSE_CREATE, &Share::make_file},
      {FUSE_LINK, &Share::link},
      {FUSE_UNLINK, &Share::remove_file},
      {FUSE_RMDIR, &Share::remove_folder},
      {FUSE_RENAME, &Share::rename},
      {FUSE_RENAME2, &Share::rename_with_flags},
      {FUSE_OPEN, &Share::open},
      {FUSE_OPENDIR, &Share::open_folder},
      {FUSE_RELEASE, &Share::release},
      {FUSE_RELEASEDIR, &Share::release},
      {FUSE_READ, &Share::read},
      {FUSE_WRITE, &Share::write},
      {FUSE_READDIR, &Share::list},
      {FUSE_FSYNC, &Share::sync},
      {FUSE_FSYNCDIR, &Share::sync},
      {FUSE_FALLOCATE, &Share::reserve},
      {FUSE_LSEEK, &Share::seek},
      {FUSE_SETXATTR, &Share::set_attribute},
      {FUSE_GETXATTR, &Share::get_attribute},
      {FUSE_LISTXATTR, &Share::list_attributes},
      {FUSE_REMOVEXATTR, &Share::remove_attribute},
  };
  const auto found = kMethods.find(opcode);
  return found == kMethods.end() ? nullptr : found->second;
}

bool Share::answer(const FuseRequest& request, FuseReply& reply) {
  const Method method = method_of(request.opcode);
  if (method == nullptr) {
    reply.fail(ENOSYS);
    return true;
  }
  // CRITICAL: read-only depends on no machine, and not on the mount alone.
  if (mode_ == ShareMode::kReadOnly && is_change(request.opcode)) {
    reply.fail(EROFS);
    return true;
  }
  // CRITICAL: what is hidden in the machine by a mount is hidden from its kernel, too.
  if (nodes_.hides(request.node) && !is_about_facts(request.opcode)) {
    reply.fail(EACCES);
    return true;
  }
  return (this->*method)(request, reply);
}

bool Share::may_open(std::uint32_t flags) const {
  return mode_ == ShareMode::kReadWrite ||
         ((flags & O_ACCMODE) == O_RDONLY && (flags & O_TRUNC) == 0);
}

bool Share::init(const FuseRequest& request, FuseReply& reply) {
  constexpr std::uint32_t kWanted = FUSE_ASYNC_READ | FUSE_ATOMIC_O_TRUNC | FUSE_BIG_WRITES |
                                    FUSE_AUTO_INVAL_DATA | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES;
  constexpr std::uint32_t kPage = 4096;
  fuse_init_in offered{};
  FuseBody body(request.body);
  // What newer kernels add after these four is theirs.
  if (!body.take(offered.major) || !body.take(offered.minor) || !body.take(offered.max_readahead) ||
      !body.take(offered.flags)) {
    return false;
  }
  fuse_init_out told{};
  told.major = FUSE_KERNEL_VERSION;
  told.minor = std::min<std::uint32_t>(offered.minor, 31);
  told.max_readahead = offered.max_readahead;
  // CRITICAL: no cache of what is written, so that the host's files are what the sandbox wrote.
  told.flags = offered.flags & kWanted;
  told.max_background = 16;
  told.congestion_threshold = 12;
  told.max_write = kFuseData;
  told.time_gran = 1;
  told.max_pages = kFuseData / kPage;
  if (offered.major != FUSE_KERNEL_VERSION || offered.minor < 31) {
    reply.fail(EPROTO);
    return true;
  }
  reply.put(told);
  return true;
}

bool Share::finish(const FuseRequest&, FuseReply&) { return true; }

bool Share::ignore(const FuseRequest&, FuseReply& reply) {
  reply.be_silent();
  return true;
}

bool Share::forget(const FuseRequest& request, FuseReply& reply) {
  reply.be_silent();
  fuse_forget_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  nodes_.forget(request.node, wanted.nlookup);
  return true;
}

bool Share::forget_many(const FuseRequest& request, FuseReply& reply) {
  reply.be_silent();
  fuse_batch_forget_in many{};
  FuseBody body(request.body);
  if (!body.take(many) || body.rest().size() != many.count * sizeof(fuse_forget_one)) {
    return false;
  }
  for (fuse_forget_one one{}; body.take(one);) {
    nodes_.forget(one.nodeid, one.nlookup);
  }
  return true;
}

UniqueFd Share::find(std::uint64_t node, FuseReply& reply) const {
  int error = 0;
  UniqueFd file = nodes_.open(node, error);
  for (auto one = handles_.begin(); error == ESTALE && one != handles_.end(); ++one) {
    if (one->second.node == node) {
      file.reset(::fcntl(one->second.file.get(), F_DUPFD_CLOEXEC, 3));
      error = file.valid() ? 0 : errno;
    }
  }
  reply.fail(error);
  return file;
}

UniqueFd Share::reopen(int file, int flags, FuseReply& reply) const {
  // The descriptor is a link there that leads to the very file.
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  UniqueFd opened(static_cast<int>(
      ::syscall(SYS_openat2, descriptors_, std::to_string(file).c_str(), &how, sizeof how)));
  if (!opened.valid()) {
    reply.fail(errno);
  }
  return opened;
}

const Share::Handle* Share::handle(std::uint64_t number) const {
  const auto found = handles_.find(number);
  return found == handles_.end() ? nullptr : &found->second;
}

std::uint64_t Share::keep(UniqueFd file, std::uint64_t node) {
  if (handles_.size() >= bounds_.handles) {
    return 0;
  }
  handles_.emplace(next_handle_, Handle{std::move(file), node});
  return next_handle_++;
}

bool Share::get_facts(const FuseRequest& request, FuseReply& reply) {
  fuse_getattr_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  const Handle* const open =
      (wanted.getattr_flags & FUSE_GETATTR_FH) != 0 ? handle(wanted.fh) : nullptr;
  const UniqueFd file = open == nullptr ? find(request.node, reply) : UniqueFd();
  if (reply.error() != 0) {
    return true;
  }
  struct statx facts{};
  reply.fail(look_at(open != nullptr ? open->file.get() : file.get(), facts));
  fuse_attr_out told{};
  told.attr = facts_for_machine(facts);
  reply.put(told);
  return true;
}

int Share::change_size(int file, const fuse_setattr_in& wanted, FuseReply& reply) const {
  struct statx facts{};
  const Handle* const open = (wanted.valid & FATTR_FH) != 0 ? handle(wanted.fh) : nullptr;
  if (const int error = look_at(open != nullptr ? open->file.get() : file, facts); error != 0) {
    return error;
  }
  if (!S_ISREG(facts.stx_mode)) {
    return EINVAL;
  }
  const UniqueFd opened = open == nullptr ? reopen(file, O_WRONLY, reply) : UniqueFd();
  if (open == nullptr && !opened.valid()) {
    return reply.error();
  }
  return ::ftruncate(open != nullptr ? open->file.get() : opened.get(),
                     static_cast<off_t>(wanted.size)) == 0
             ? 0
             : errno;
}

int Share::change(int file, const fuse_setattr_in& wanted, FuseReply& reply) const {
  const std::string self = std::to_string(file);
  if ((wanted.valid & FATTR_SIZE) != 0) {
    if (const int error = change_size(file, wanted, reply); error != 0) {
      return error;
    }
  }
  if ((wanted.valid & FATTR_MODE) != 0) {
    // CRITICAL: a set-id file would give its owner's rights to everybody on the host.
    if ((wanted.mode & kSetId) != 0) {
      return EPERM;
    }
    if (::fchmodat(descriptors_, self.c_str(), wanted.mode & kModes, 0) != 0) {
      return errno;
    }
  }
  if ((wanted.valid & (FATTR_ATIME | FATTR_MTIME)) != 0) {
    const std::array<timespec, 2> times = {wanted_time(wanted.valid, FATTR_ATIME, FATTR_ATIME_NOW,
                                                       time_of(wanted.atime, wanted.atimensec)),
                                           wanted_time(wanted.valid, FATTR_MTIME, FATTR_MTIME_NOW,
                                                       time_of(wanted.mtime, wanted.mtimensec))};
    if (::utimensat(descriptors_, self.c_str(), times.data(), 0) != 0) {
      return errno;
    }
  }
  return 0;
}

bool Share::set_facts(const FuseRequest& request, FuseReply& reply) {
  fuse_setattr_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end() || !are_times(wanted)) {
    return false;
  }
  // There is one user; what is his stays his.
  if (((wanted.valid & FATTR_UID) != 0 && wanted.uid != guest::kInnerId) ||
      ((wanted.valid & FATTR_GID) != 0 && wanted.gid != guest::kInnerId)) {
    reply.fail(EPERM);
    return true;
  }
  const UniqueFd file = find(request.node, reply);
  if (!file.valid()) {
    return true;
  }
  reply.fail(change(file.get(), wanted, reply));
  struct statx facts{};
  if (reply.error() == 0) {
    reply.fail(look_at(file.get(), facts));
  }
  fuse_attr_out told{};
  told.attr = facts_for_machine(facts);
  reply.put(told);
  return true;
}

bool Share::tell_room(const FuseRequest& request, FuseReply& reply) {
  struct statfs info{};
  if (!request.body.empty()) {
    return false;
  }
  if (::fstatfs(nodes_.top(), &info) != 0) {
    reply.fail(errno);
    return true;
  }
  fuse_statfs_out told{};
  told.st.blocks = info.f_blocks;
  told.st.bfree = info.f_bfree;
  told.st.bavail = info.f_bavail;
  told.st.files = info.f_files;
  told.st.ffree = info.f_ffree;
  told.st.bsize = static_cast<std::uint32_t>(info.f_bsize);
  told.st.namelen = static_cast<std::uint32_t>(info.f_namelen);
  told.st.frsize = static_cast<std::uint32_t>(info.f_frsize);
  reply.put(told);
  return true;
}

}  // namespace carrel::microvm
