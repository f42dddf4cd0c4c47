// What the folders of a share have: looking, making, renaming, removing.
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

#include "backends/microvm/share.h"

namespace carrel::microvm {

namespace {

// CRITICAL: no set-id bit.
constexpr std::uint32_t kShareModes = 01777;
constexpr unsigned kRenames = RENAME_NOREPLACE | RENAME_EXCHANGE;

// A name in a folder, with no link followed.
UniqueFd open_name(int folder, const std::string& name, int flags, std::uint32_t mode) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.mode = mode;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return UniqueFd(static_cast<int>(::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how)));
}

void settle(int result, FuseReply& reply) { reply.fail(result == 0 ? 0 : errno); }

}  // namespace

void Share::tell_entry(std::uint64_t parent, int folder, const std::string& name,
                       FuseReply& reply) {
  const UniqueFd file = open_name(folder, name, O_PATH, 0);
  struct statx facts{};
  reply.fail(file.valid() ? look_at(file.get(), facts) : errno);
  if (reply.error() != 0) {
    return;
  }
  fuse_entry_out told{};
  told.nodeid = nodes_.see(parent, name, nodes_.key_of(facts));
  told.attr = facts_for_machine(facts);
  if (told.nodeid == 0) {
    reply.fail(ENFILE);
    return;
  }
  if (is_hidden(folder, name)) {
    nodes_.hide(told.nodeid);
  }
  reply.put(told);
}

void Share::hide(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  const UniqueFd folder = slash == std::string::npos
                              ? UniqueFd(::fcntl(nodes_.top(), F_DUPFD_CLOEXEC, 3))
                              : open_name(nodes_.top(), path.substr(0, slash), O_PATH, 0);
  struct statx facts{};
  // Where there is no such folder there is nothing to hide.
  if (folder.valid() && look_at(folder.get(), facts) == 0) {
    hidden_.emplace(nodes_.key_of(facts), name);
  }
}

bool Share::is_hidden(int folder, const std::string& name) const {
  struct statx facts{};
  return !hidden_.empty() &&
         (look_at(folder, facts) != 0 || hidden_.contains({nodes_.key_of(facts), name}));
}

UniqueFd Share::find_folder(std::uint64_t node, const std::string& name, FuseReply& reply) const {
  UniqueFd folder = find(node, reply);
  if (folder.valid() && is_hidden(folder.get(), name)) {
    reply.fail(EACCES);
    return {};
  }
  return folder;
}

bool Share::look_up(const FuseRequest& request, FuseReply& reply) {
  std::string name;
  FuseBody body(request.body);
  if (!body.take_name(name) || !body.at_end()) {
    return false;
  }
  if (const UniqueFd folder = find(request.node, reply); folder.valid()) {
    tell_entry(request.node, folder.get(), name, reply);
  }
  return true;
}

bool Share::read_link(const FuseRequest& request, FuseReply& reply) {
  const UniqueFd file = find(request.node, reply);
  if (!file.valid()) {
    return request.body.empty();
  }
  std::array<char, PATH_MAX> target{};
  const ssize_t n = ::readlinkat(file.get(), "", target.data(), target.size());
  if (n < 0) {
    reply.fail(errno);
  } else {
    reply.put_bytes({target.data(), static_cast<std::size_t>(n)});
  }
  return request.body.empty();
}

bool Share::make_link(const FuseRequest& request, FuseReply& reply) {
  std::string name;
  std::string target;
  FuseBody body(request.body);
  if (!body.take_name(name) || !body.take_text(target) || !body.at_end()) {
    return false;
  }
  if (const UniqueFd folder = find_folder(request.node, name, reply); folder.valid()) {
    settle(::symlinkat(target.c_str(), folder.get(), name.c_str()), reply);
    if (reply.error() == 0) {
      tell_entry(request.node, folder.get(), name, reply);
    }
  }
  return true;
}

bool Share::make_special(const FuseRequest& request, FuseReply& reply) {
  fuse_mknod_in wanted{};
  std::string name;
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.take_name(name) || !body.at_end()) {
    return false;
  }
  const mode_t kind = wanted.mode & S_IFMT;
  // CRITICAL: nothing that is a device on the host, of whatever number.
  if (kind != S_IFREG && kind != S_IFIFO && kind != S_IFSOCK) {
    reply.fail(EPERM);
    return true;
  }
  if (const UniqueFd folder = find_folder(request.node, name, reply); folder.valid()) {
    settle(::mknodat(folder.get(), name.c_str(), kind | (wanted.mode & kShareModes), 0), reply);
    if (reply.error() == 0) {
      tell_entry(request.node, folder.get(), name, reply);
    }
  }
  return true;
}

bool Share::make_folder(const FuseRequest& request, FuseReply& reply) {
  fuse_mkdir_in wanted{};
  std::string name;
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.take_name(name) || !body.at_end()) {
    return false;
  }
  if (const UniqueFd folder = find_folder(request.node, name, reply); folder.valid()) {
    settle(::mkdirat(folder.get(), name.c_str(), wanted.mode & kShareModes), reply);
    if (reply.error() == 0) {
      tell_entry(request.node, folder.get(), name, reply);
    }
  }
  return true;
}

bool Share::make_file(const FuseRequest& request, FuseReply& reply) {
  fuse_create_in wanted{};
  std::string name;
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.take_name(name) || !body.at_end()) {
    return false;
  }
  const UniqueFd folder = find_folder(request.node, name, reply);
  if (!folder.valid()) {
    return true;
  }
  constexpr std::uint32_t kFlags = O_ACCMODE | O_EXCL | O_TRUNC;
  const auto flags = static_cast<int>((wanted.flags & kFlags) | O_CREAT | O_NONBLOCK | O_NOCTTY);
  UniqueFd file = open_name(folder.get(), name, flags, wanted.mode & kShareModes);
  struct statx facts{};
  reply.fail(file.valid() ? look_at(file.get(), facts) : errno);
  if (reply.error() == 0 && !S_ISREG(facts.stx_mode)) {
    reply.fail(EINVAL);  // somebody else put it there
  }
  if (reply.error() != 0) {
    return true;
  }
  fuse_entry_out told{};
  fuse_open_out opened{};
  told.nodeid = nodes_.see(request.node, name, nodes_.key_of(facts));
  told.attr = facts_for_machine(facts);
  opened.fh = told.nodeid == 0 ? 0 : keep(std::move(file), told.nodeid);
  if (opened.fh == 0) {
    nodes_.forget(told.nodeid, 1);
    reply.fail(ENFILE);
    return true;
  }
  reply.put(told);
  reply.put(opened);
  return true;
}

bool Share::link(const FuseRequest& request, FuseReply& reply) {
  fuse_link_in wanted{};
  std::string name;
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.take_name(name) || !body.at_end()) {
    return false;
  }
  if (nodes_.hides(wanted.oldnodeid)) {
    reply.fail(EACCES);
    return true;
  }
  const UniqueFd file = find(wanted.oldnodeid, reply);
  const UniqueFd folder = file.valid() ? find_folder(request.node, name, reply) : UniqueFd();
  if (folder.valid()) {
    settle(::linkat(descriptors_, std::to_string(file.get()).c_str(), folder.get(), name.c_str(),
                    AT_SYMLINK_FOLLOW),
           reply);
    if (reply.error() == 0) {
      tell_entry(request.node, folder.get(), name, reply);
    }
  }
  return true;
}

void Share::remove(const FuseRequest& request, const std::string& name, int flags,
                   FuseReply& reply) {
  if (const UniqueFd folder = find_folder(request.node, name, reply); folder.valid()) {
    settle(::unlinkat(folder.get(), name.c_str(), flags), reply);
  }
}

bool Share::remove_file(const FuseRequest& request, FuseReply& reply) {
  std::string name;
  FuseBody body(request.body);
  if (!body.take_name(name) || !body.at_end()) {
    return false;
  }
  remove(request, name, 0, reply);
  return true;
}

bool Share::remove_folder(const FuseRequest& request, FuseReply& reply) {
  std::string name;
  FuseBody body(request.body);
  if (!body.take_name(name) || !body.at_end()) {
    return false;
  }
  remove(request, name, AT_REMOVEDIR, reply);
  return true;
}

bool Share::rename(const FuseRequest& request, FuseReply& reply) {
  fuse_rename_in wanted{};
  FuseBody body(request.body);
  return body.take(wanted) && rename_to(request, body, wanted.newdir, 0, reply);
}

bool Share::rename_with_flags(const FuseRequest& request, FuseReply& reply) {
  fuse_rename2_in wanted{};
  FuseBody body(request.body);
  return body.take(wanted) && rename_to(request, body, wanted.newdir, wanted.flags, reply);
}

bool Share::rename_to(const FuseRequest& request, FuseBody body, std::uint64_t target,
                      unsigned flags, FuseReply& reply) {
  std::string from;
  std::string to;
  if (!body.take_name(from) || !body.take_name(to) || !body.at_end()) {
    return false;
  }
  // CRITICAL: RENAME_WHITEOUT would make a device.
  if ((flags & ~kRenames) != 0) {
    reply.fail(EINVAL);
    return true;
  }
  const UniqueFd source = find_folder(request.node, from, reply);
  const UniqueFd folder = source.valid() ? find_folder(target, to, reply) : UniqueFd();
  if (!folder.valid()) {
    return true;
  }
  settle(static_cast<int>(
             ::syscall(SYS_renameat2, source.get(), from.c_str(), folder.get(), to.c_str(), flags)),
         reply);
  if (reply.error() != 0) {
    return true;
  }
  struct statx facts{};
  if (const UniqueFd moved = open_name(folder.get(), to, O_PATH, 0);
      moved.valid() && look_at(moved.get(), facts) == 0) {
    nodes_.move(nodes_.key_of(facts), target, to);
  }
  if ((flags & RENAME_EXCHANGE) != 0) {
    if (const UniqueFd other = open_name(source.get(), from, O_PATH, 0);
        other.valid() && look_at(other.get(), facts) == 0) {
      nodes_.move(nodes_.key_of(facts), request.node, from);
    }
  }
  return true;
}

}  // namespace carrel::microvm
