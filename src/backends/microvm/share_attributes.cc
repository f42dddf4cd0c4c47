// Extended attributes of a share: those that any user may have, and no others.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <array>
#include <cerrno>
#include <vector>

#include "backends/microvm/share.h"

namespace carrel::microvm {

namespace {

constexpr std::size_t kLongestValue = 64U << 10;
constexpr std::string_view kUsers = "user.";

// CRITICAL: others mean something to the host's kernel: capabilities, labels, parts of overlays.
bool is_users(std::string_view name) {
  constexpr std::string_view kOverlay = "user.overlay.";
  return name.starts_with(kUsers) && name.size() > kUsers.size() && !name.starts_with(kOverlay);
}

// As the kernel asks: a size of zero is the question how much there is.
void tell(std::string_view bytes, std::uint32_t room, FuseReply& reply) {
  if (room == 0) {
    fuse_getxattr_out told{};
    told.size = static_cast<std::uint32_t>(bytes.size());
    reply.put(told);
  } else if (bytes.size() > room) {
    reply.fail(ERANGE);
  } else {
    reply.put_bytes(bytes);
  }
}

}  // namespace

// Files and folders have them.
UniqueFd Share::open_for_attributes(std::uint64_t node, FuseReply& reply) const {
  const UniqueFd file = find(node, reply);
  struct statx facts{};
  if (!file.valid()) {
    return {};
  }
  reply.fail(look_at(file.get(), facts));
  if (reply.error() == 0 && !S_ISREG(facts.stx_mode) && !S_ISDIR(facts.stx_mode)) {
    reply.fail(EOPNOTSUPP);
  }
  return reply.error() == 0 ? reopen(file.get(), O_RDONLY, reply) : UniqueFd();
}

bool Share::set_attribute(const FuseRequest& request, FuseReply& reply) {
  std::uint32_t size = 0;
  std::uint32_t flags = 0;
  std::string name;
  FuseBody body(request.body);
  if (!body.take(size) || !body.take(flags) || !body.take_text(name) ||
      body.rest().size() != size || size > kLongestValue) {
    return false;
  }
  if (!is_users(name)) {
    reply.fail(EOPNOTSUPP);
    return true;
  }
  const UniqueFd opened = open_for_attributes(request.node, reply);
  if (opened.valid() &&
      ::fsetxattr(opened.get(), name.c_str(), body.rest().data(), size,
                  static_cast<int>(flags & (XATTR_CREATE | XATTR_REPLACE))) != 0) {
    reply.fail(errno);
  }
  return true;
}

bool Share::get_attribute(const FuseRequest& request, FuseReply& reply) {
  fuse_getxattr_in wanted{};
  std::string name;
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.take_text(name) || !body.at_end()) {
    return false;
  }
  if (!is_users(name)) {
    reply.fail(ENODATA);
    return true;
  }
  const UniqueFd opened = open_for_attributes(request.node, reply);
  if (!opened.valid()) {
    return true;
  }
  std::vector<char> value(kLongestValue);
  const ssize_t n = ::fgetxattr(opened.get(), name.c_str(), value.data(), value.size());
  if (n < 0) {
    reply.fail(errno);
  } else {
    tell({value.data(), static_cast<std::size_t>(n)}, wanted.size, reply);
  }
  return true;
}

bool Share::list_attributes(const FuseRequest& request, FuseReply& reply) {
  fuse_getxattr_in wanted{};
  FuseBody body(request.body);
  if (!body.take(wanted) || !body.at_end()) {
    return false;
  }
  const UniqueFd opened = open_for_attributes(request.node, reply);
  if (!opened.valid()) {
    return true;
  }
  std::vector<char> names(kLongestValue);
  const ssize_t n = ::flistxattr(opened.get(), names.data(), names.size());
  if (n < 0) {
    reply.fail(errno);
    return true;
  }
  std::string told;
  FuseBody all({names.data(), static_cast<std::size_t>(n)});
  for (std::string name; all.take_text(name);) {
    if (is_users(name)) {
      told.append(name.c_str(), name.size() + 1);
    }
  }
  tell(told, wanted.size, reply);
  return true;
}

bool Share::remove_attribute(const FuseRequest& request, FuseReply& reply) {
  std::string name;
  FuseBody body(request.body);
  if (!body.take_text(name) || !body.at_end()) {
    return false;
  }
  if (!is_users(name)) {
    reply.fail(EOPNOTSUPP);
    return true;
  }
  const UniqueFd opened = open_for_attributes(request.node, reply);
  if (opened.valid() && ::fremovexattr(opened.get(), name.c_str()) != 0) {
    reply.fail(errno);
  }
  return true;
}

}  // namespace carrel::microvm
