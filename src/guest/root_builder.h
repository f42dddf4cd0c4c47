#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "guest/failure.h"
#include "guest/root.h"
#include "guest/tree.h"
#include "protocol/boot.h"

namespace carrel::guest {

inline constexpr unsigned kCloneTree = 1;  // OPEN_TREE_CLONE
inline constexpr unsigned kNoFollow = 0x100;

// The attributes that the step's flags mean.
std::uint64_t attributes_of(const protocol::MountStep& step);

// Follows a mount plan. What is built when is in root.cc, how each step is taken in root_steps.cc
// and root_trees.cc, and what may be built before the plan is known in root_ahead.cc.
class RootBuilder {
 public:
  RootBuilder(std::string_view staging, BuiltRoot& built, Failure& failure)
      : staging_(staging), built_(built), failure_(failure) {}
  bool build_whole(const protocol::Plan& plan, std::span<int> trees);
  bool build_shared(std::string_view shared);
  bool build_further(std::string_view part);
  // A root for a guest that does not know its plan yet: everything but that it moves in. The plan
  // has to stay until build_rest(). What fails is no error of anybody's sandbox.
  bool build_ahead(const protocol::Plan& plan);
  // Moves in before the rest is known, which can be nothing but texts then.
  bool move_in();
  // What the plan has beyond that, if it was built, and moves in.
  bool build_rest(std::string_view rest, std::span<int> trees);
  // Leaves nothing of it, so that another root can be built.
  void abandon();

 private:
  enum class Pass { kTrees, kTmpfs, kRest };
  struct Cover {
    int mounted = -1;  // what the others are cloned from
    int next = -1;     // one that is not used yet
  };
  // A file that was put in the place of another one ahead.
  struct Replaced {
    std::string_view path;
    int file = -1;
  };
  static constexpr std::size_t kMaxReplaced = 16;
  bool leave_host();
  bool begin_root();

  // The host's proc with what is mounted in it: a copy without would show more than the original.
  bool keep_proc();
  bool follow(std::string_view plan, Pass pass);
  int make_private();

  // A mount gets its attributes while it is detached. A kernel that cannot do that remounts it as
  // soon as it is at its place.
  [[nodiscard]] int protect(int mount, std::uint64_t set, unsigned flags) const;
  [[nodiscard]] int protect_attached(int mount, std::uint64_t set, unsigned flags) const;

  // Protects the mount and puts it at the tree's path. Closes it.
  int put(int mount, std::uint64_t set, unsigned flags);

  // A new tmpfs. It is attached on top of the staging directory, because only an attached mount
  // can be cloned from; what is left there goes away with the host's tree.
  int make_tmpfs(const char* options);
  bool take(const protocol::MountStep& step);
  bool attach_tmpfs(const protocol::MountStep& step);
  bool attach(const protocol::MountStep& step, int mount, std::uint64_t set, std::uint64_t present);
  bool make_file(const protocol::MountStep& step);
  bool bind(const protocol::MountStep& step);
  bool make_target(const protocol::MountStep& step);
  bool bind_device(const protocol::MountStep& step);
  bool mount_proc(const protocol::MountStep& step);
  bool mount_devpts(const protocol::MountStep& step);
  int make_text(std::uint8_t slot, std::string_view path, std::string_view content);
  bool replace_file(const protocol::MountStep& step);
  bool mask(const protocol::MountStep& step);
  int make_cover(const protocol::MountStep& step, Cover& cover);
  bool make_read_only(const protocol::MountStep& step);
  bool mount_overlay(const protocol::MountStep& step);
  bool replace_root(const protocol::MountStep& step, int mount);
  bool make_mount_point(const protocol::MountStep& step);

  // Before anything of the host's is covered, each given tree becomes a detached mount.
  bool take_tree(const protocol::MountStep& step);
  int find_again(const protocol::MountStep& step, int given);
  bool put_tree(const protocol::MountStep& step);
  bool end_trees();

  // What was built ahead becomes what is wanted now.
  bool resize(const protocol::MountStep& step);
  bool rewrite(const Replaced& replaced, const protocol::MountStep& step);
  [[nodiscard]] const Replaced* find_replaced(std::string_view path) const;
  int keep_file(std::string_view path, int file);

  void close_replaced();

  // The host's tree lies on top of the new root after this, and is detached as a whole.
  bool enter();
  void forget();

  Name staging_;
  BuiltRoot& built_;
  Failure& failure_;
  Tree tree_;
  std::span<int> trees_;
  Name source_;
  Cover empty_file_;
  Cover empty_directory_;
  unsigned overlays_ = 0;
  unsigned texts_ = 0;
  bool remounts_ = false;  // the kernel has no mount_setattr
  bool copied_ = false;    // the shared part was there
  enum class Ahead { kNo, kBuilding, kBuilt } ahead_ = Ahead::kNo;
  bool inside_ = false;
  unsigned staged_ = 0;  // mounts on the staging directory
  Replaced replaced_[kMaxReplaced];
  std::size_t replaced_count_ = 0;
};

}  // namespace carrel::guest
