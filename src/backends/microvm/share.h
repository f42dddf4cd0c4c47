#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "backends/microvm/fuse_message.h"
#include "backends/microvm/share_nodes.h"
#include "base/unique_fd.h"

namespace carrel::microvm {

enum class ShareMode { kReadOnly, kReadWrite };

struct ShareBounds {
  std::size_t files = 256U << 10;  // that are known at once
  std::size_t handles = 4096;      // that are open at once
};

// A tree of the host's that a machine is given: it answers the requests of the machine's kernel
// (FUSE), beneath one descriptor and with the rights of this process. Writes go through to the host
// at once, and what the host changes is seen. There is nothing behind it but files, folders, links,
// pipes and sockets: no device, no set-id bit, no attribute that is not a user's. All files that
// are this process's user's are the sandbox's user's inside, all others are nobody's.
class Share {
 public:
  // `descriptors` is /proc/self/fd, where a file that is known by descriptor can be opened again.
  Share(UniqueFd top, ShareMode mode, int descriptors, ShareBounds bounds = {});

  // What is at that path from the top, if it is ever there, can be seen and not be used.
  void hide(const std::string& path);

  // False: the request is malformed, and whoever sent it is not listened to any more.
  bool answer(const FuseRequest& request, FuseReply& reply);

  [[nodiscard]] std::size_t known() const { return nodes_.size(); }
  [[nodiscard]] std::size_t hidden() const { return nodes_.hidden(); }
  [[nodiscard]] std::size_t handles() const { return handles_.size(); }

 private:
  struct Handle {
    UniqueFd file;
    std::uint64_t node = 0;
  };
  using Method = bool (Share::*)(const FuseRequest&, FuseReply&);
  static Method method_of(std::uint32_t opcode);
  [[nodiscard]] bool may_open(std::uint32_t flags) const;

  // share.cc: all of it, and facts.
  bool init(const FuseRequest& request, FuseReply& reply);
  bool finish(const FuseRequest& request, FuseReply& reply);
  bool forget(const FuseRequest& request, FuseReply& reply);
  bool forget_many(const FuseRequest& request, FuseReply& reply);
  bool ignore(const FuseRequest& request, FuseReply& reply);
  bool get_facts(const FuseRequest& request, FuseReply& reply);
  bool set_facts(const FuseRequest& request, FuseReply& reply);
  bool tell_room(const FuseRequest& request, FuseReply& reply);
  // share_names.cc: what a folder has.
  bool look_up(const FuseRequest& request, FuseReply& reply);
  bool read_link(const FuseRequest& request, FuseReply& reply);
  bool make_link(const FuseRequest& request, FuseReply& reply);
  bool make_special(const FuseRequest& request, FuseReply& reply);
  bool make_folder(const FuseRequest& request, FuseReply& reply);
  bool make_file(const FuseRequest& request, FuseReply& reply);
  bool link(const FuseRequest& request, FuseReply& reply);
  bool remove_file(const FuseRequest& request, FuseReply& reply);
  bool remove_folder(const FuseRequest& request, FuseReply& reply);
  bool rename(const FuseRequest& request, FuseReply& reply);
  bool rename_with_flags(const FuseRequest& request, FuseReply& reply);
  // share_files.cc: what is open.
  bool open(const FuseRequest& request, FuseReply& reply);
  bool open_folder(const FuseRequest& request, FuseReply& reply);
  bool release(const FuseRequest& request, FuseReply& reply);
  bool read(const FuseRequest& request, FuseReply& reply);
  bool write(const FuseRequest& request, FuseReply& reply);
  bool list(const FuseRequest& request, FuseReply& reply);
  bool sync(const FuseRequest& request, FuseReply& reply);
  bool reserve(const FuseRequest& request, FuseReply& reply);
  bool seek(const FuseRequest& request, FuseReply& reply);
  // share_attributes.cc: extended attributes of users.
  bool set_attribute(const FuseRequest& request, FuseReply& reply);
  bool get_attribute(const FuseRequest& request, FuseReply& reply);
  bool list_attributes(const FuseRequest& request, FuseReply& reply);
  bool remove_attribute(const FuseRequest& request, FuseReply& reply);

  // A known file, O_PATH or, where it has no name any more, as somebody has it open.
  UniqueFd find(std::uint64_t node, FuseReply& reply) const;
  // The same, opened for something.
  UniqueFd reopen(int file, int flags, FuseReply& reply) const;
  UniqueFd open_for_attributes(std::uint64_t node, FuseReply& reply) const;
  [[nodiscard]] const Handle* handle(std::uint64_t number) const;
  std::uint64_t keep(UniqueFd file, std::uint64_t node);  // 0: there are too many
  // The file of a handle; -1: there is no such one, which the answer is then.
  int opened(std::uint64_t number, FuseReply& reply) const;
  // Keeps what was opened and tells its handle, or why there is none.
  void tell_opened(UniqueFd file, std::uint64_t node, FuseReply& reply);
  // A folder in which something is to be done with a name that is not hidden.
  UniqueFd find_folder(std::uint64_t node, const std::string& name, FuseReply& reply) const;
  [[nodiscard]] bool is_hidden(int folder, const std::string& name) const;
  // Tells what is at a name now, which the machine knows from then on.
  void tell_entry(std::uint64_t parent, int folder, const std::string& name, FuseReply& reply);
  bool rename_to(const FuseRequest& request, FuseBody body, std::uint64_t target, unsigned flags,
                 FuseReply& reply);
  void remove(const FuseRequest& request, const std::string& name, int flags, FuseReply& reply);
  int change(int file, const fuse_setattr_in& wanted, FuseReply& reply) const;
  int change_size(int file, const fuse_setattr_in& wanted, FuseReply& reply) const;

  ShareNodes nodes_;
  ShareMode mode_;
  int descriptors_;
  ShareBounds bounds_;
  std::map<std::uint64_t, Handle> handles_;
  std::uint64_t next_handle_ = 1;
  std::set<std::pair<FileKey, std::string>> hidden_;  // by their folders
};

// The facts of a file as a machine is told them.
fuse_attr facts_for_machine(const struct statx& facts);

}  // namespace carrel::microvm
