#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "kernel/cgroup_layout.h"
#include "kernel/cgroup_limits.h"

namespace carrel::kernel {

// What a group uses now. A number the host does not give is absent.
struct CgroupUsage {
  std::optional<std::uint64_t> memory_bytes;
  std::optional<std::uint64_t> memory_peak_bytes;
  std::optional<std::uint64_t> pids;
  std::optional<std::uint64_t> cpu_usec;
  std::optional<std::uint64_t> cpu_throttled_periods;
};

// Whether the destructor removes the group. kBorrowed is for looking at another process's sandbox.
enum class CgroupOwnership { kOwned, kBorrowed };

// The processes of one sandbox, or of one leaf of it, with their limits, as one group in every
// hierarchy of the layout: v2 for placing, freezing and killing where there is a v2 tree, and v2 or
// v1 for the limits. Owned: the destructor kills what is in it and removes it.
//
// CRITICAL: a process belongs to the sandbox only once it is in the group of *every* hierarchy:
// cloned into clone_into_fd() and, before it runs anything untrusted, written to all join_fds().
//
// The layout must outlive the group. Nothing here is thread-safe.
class Cgroup {
 public:
  // Makes the group and sets its limits; it has no processes yet. An existing group of that id in
  // any hierarchy is a kConflict. Where a controller is missing its limit is not held: see
  // enforced(), the caller decides.
  static Result<Cgroup> create(const CgroupLayout& layout, std::string_view id,
                               const CgroupLimits& limits);

  // The same, but a group of that id is taken over where there is one; kConflict only when there
  // are processes in it. The caller must be the only one who may use that id.
  static Result<Cgroup> take(const CgroupLayout& layout, std::string_view id,
                             const CgroupLimits& limits);

  // The existing group of that id, wherever it exists; kNotFound where it exists nowhere. Its
  // enforced() is empty: what it was given is not read back.
  static Result<Cgroup> open(const CgroupLayout& layout, std::string_view id,
                             CgroupOwnership ownership = CgroupOwnership::kOwned);

  // A leaf of this group with limits of its own. It has a group in the v2 tree and in those v1
  // hierarchies that one of its limits needs; in the others its processes are counted to this
  // group. On v2 a group with leaves holds no processes itself, so leaves are made first. A leaf
  // has no leaves.
  Result<Cgroup> subgroup(std::string_view name, const CgroupLimits& limits);
  Result<Cgroup> open_subgroup(std::string_view name,
                               CgroupOwnership ownership = CgroupOwnership::kOwned);

  Cgroup(Cgroup&& other) noexcept;
  Cgroup& operator=(Cgroup&& other) noexcept;
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;
  ~Cgroup();

  // The id, or "id/leaf".
  [[nodiscard]] std::string name() const { return name_.substr(layout_->prefix.size()); }
  [[nodiscard]] const CgroupEnforcement& enforced() const { return enforced_; }

  // Changes the limits that are given and leaves the others. Memory in use above a new limit is
  // given back as far as the kernel can, or it is an error.
  Status set_limits(const CgroupLimits& limits);

  // The v2 directory for CLONE_INTO_CGROUP, -1 without a v2 tree. Stays owned by this object.
  [[nodiscard]] int clone_into_fd();

  // The v1 `tasks` files, open for writing: a child with a single thread writes "0" to each. That
  // is hundreds of times quicker than having a parent write the child's pid to cgroup.procs, which
  // waits for every processor.
  [[nodiscard]] Result<std::vector<UniqueFd>> join_fds() const;

  // The v2 cgroup.procs, open for writing: whoever holds it moves itself in by writing "0", also
  // from inside a namespace. Invalid without a v2 tree.
  [[nodiscard]] Result<UniqueFd> procs_fd() const;

  // Moves a process in, in every hierarchy, from outside. Slow (ten milliseconds); for kernels that
  // cannot clone into a group.
  Status attach(pid_t pid);

  // Ends everything in the group and its leaves: by cgroup.kill, or by freezing and signalling.
  // Returns when the signals are sent, not when the processes are gone. Where there is a v2 tree,
  // "in the group" means there.
  Status kill();

  // Stops every process of the group and waits until they stand (at most two seconds); lets them
  // go on. kUnsupported without a freezer.
  Status freeze();
  Status thaw();

  // Whether there is a process in the group or in a leaf.
  [[nodiscard]] bool populated() const;
  // The same by one number, which only a group with a process controller has: otherwise it is true.
  [[nodiscard]] bool has_processes() const;

  [[nodiscard]] CgroupUsage usage() const;

  // How many processes the kernel killed for reaching the memory limit, and how many forks were
  // refused at the process limit, in this group and its leaves.
  [[nodiscard]] std::uint64_t oom_kills() const;
  [[nodiscard]] std::uint64_t pids_limit_hits() const;

  // Whether the next processes in it would feel nothing of those that were: none is left, none was
  // held back for the time it used, and at most `memory_bytes` are still counted. Counts of what
  // was killed and refused are for the caller to look at.
  [[nodiscard]] bool is_as_new(std::uint64_t memory_bytes) const;

  // A descriptor that poll() finds readable when the memory limit was reached. On v1 an eventfd,
  // readable also when the group is removed; on v2 an inotify on memory.events, readable on every
  // change of that file. So read it, then ask oom_kills(). It says nothing of a leaf's own limit on
  // v1. kUnsupported without a memory controller.
  [[nodiscard]] Result<UniqueFd> oom_event_fd() const;

  // Kills what is left, waits until it is gone (at most five seconds) and removes the group and its
  // leaves from every hierarchy. A group that is already gone is fine.
  Status remove();

  // Lets go of the group: the destructor leaves it as it is.
  void release() { ownership_ = CgroupOwnership::kBorrowed; }

 private:
  Cgroup(const CgroupLayout& layout, const std::string& id, CgroupOwnership ownership);
  Cgroup(const Cgroup& parent, const std::string& leaf, CgroupOwnership ownership);

  [[nodiscard]] const CgroupHierarchy& hierarchy(std::size_t index) const;
  // The hierarchy with that controller, if there is a group of this name in it.
  [[nodiscard]] std::optional<std::size_t> index_of(Controller controller) const;
  [[nodiscard]] bool exists_in(std::size_t index) const { return (present_ >> index & 1U) != 0; }
  [[nodiscard]] int home(std::size_t index) const { return hierarchy(index).home.get(); }
  [[nodiscard]] const std::string& group(std::size_t index) const;
  [[nodiscard]] std::uint64_t sum_of_leaves(std::size_t index, std::string_view file,
                                            std::string_view key) const;
  [[nodiscard]] std::uint64_t count_events(Controller controller, std::string_view v1_file,
                                           std::string_view v2_file, std::string_view key) const;
  [[nodiscard]] std::optional<std::uint64_t> read_counter(std::size_t index,
                                                          std::string_view file) const;

  enum class Existing { kConflict, kTaken };
  Status make(std::uint32_t where, const CgroupLimits& limits, Existing existing);
  Status find();
  Status set_frozen(std::string_view v2_value, std::string_view v1_value);
  void kill_members(std::size_t index) const;
  [[nodiscard]] bool try_remove();
  void remove_quietly();

  const CgroupLayout::State* layout_;  // stays where it is when the layout is moved
  std::string name_;                   // the directory, below the home of each hierarchy
  std::string parent_;                 // of a leaf
  std::vector<std::string> leaves_;    // directories, too
  std::uint32_t present_ = 0;          // a bit for each hierarchy that has a group of this name
  CgroupOwnership ownership_;
  CgroupEnforcement enforced_;
  UniqueFd v2_directory_;
};

}  // namespace carrel::kernel
