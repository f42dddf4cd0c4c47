// A root that is built before its plan is known.
#include <errno.h>
#include <sys/mount.h>
#include <unistd.h>

#include "guest/root_builder.h"
#include "guest/runtime.h"

namespace carrel::guest {

using protocol::MountStep;

bool RootBuilder::build_ahead(const protocol::Plan& plan) {
  ahead_ = Ahead::kBuilding;
  // In the order of build_whole(): what it is cannot be told from how it was built.
  const bool built = leave_host() && follow(plan.own, Pass::kTmpfs) && begin_root() &&
                     follow(plan.shared, Pass::kRest) && follow(plan.alike, Pass::kRest) &&
                     follow(plan.own, Pass::kRest);
  ahead_ = built ? Ahead::kBuilt : Ahead::kNo;
  return built;
}

bool RootBuilder::move_in() {
  if (ahead_ != Ahead::kBuilt) {
    return failure_.at("move into", "a root that is not there", -EBADMSG);
  }
  inside_ = true;
  return enter();
}

bool RootBuilder::build_rest(std::string_view rest, std::span<int> trees) {
  if (ahead_ != Ahead::kBuilt) {
    return failure_.at("build", "the rest of a root that is not there", -EBADMSG);
  }
  trees_ = trees;
  if (!follow(rest, Pass::kTrees) || !follow(rest, Pass::kTmpfs) || !follow(rest, Pass::kRest) ||
      !end_trees()) {
    return false;
  }
  close_replaced();
  return inside_ || enter();
}

void RootBuilder::abandon() {
  forget();
  empty_file_ = empty_directory_ = Cover();
  close_replaced();
  for (int* fd : {&built_.tmpfs[0], &built_.tmpfs[1], &built_.tmpfs[2], &built_.tmpfs[3],
                  &built_.proc_sys_user, &built_.loadavg}) {
    if (*fd >= 0) {
      close(*fd);
      *fd = -1;
    }
  }
  for (; staged_ > 0; --staged_) {
    umount2(staging_.c_str(), MNT_DETACH);
  }
  overlays_ = texts_ = 0;
  ahead_ = Ahead::kNo;
}

bool RootBuilder::resize(const MountStep& step) {
  Text<96> options;
  options.add("size=").add_number(step.size).add(",nr_inodes=").add_number(step.count);
  Text<40> path;
  path.add("/proc/self/fd/").add_number(static_cast<std::uint64_t>(built_.tmpfs[step.slot]));
  return mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_NOSUID | MS_NODEV,
               options.c_str()) == 0 ||
         failure_.at("set the size of the tmpfs for", step.path, -errno);
}

const RootBuilder::Replaced* RootBuilder::find_replaced(std::string_view path) const {
  for (std::size_t i = 0; ahead_ == Ahead::kBuilt && i < replaced_count_; ++i) {
    if (replaced_[i].path == path) {
      return &replaced_[i];
    }
  }
  return nullptr;
}

int RootBuilder::keep_file(std::string_view path, int file) {
  if (replaced_count_ == kMaxReplaced) {
    close(file);
    return -E2BIG;
  }
  replaced_[replaced_count_++] = {path, file};
  return 0;
}

bool RootBuilder::rewrite(const Replaced& replaced, const MountStep& step) {
  if (ftruncate(replaced.file, 0) != 0 || lseek(replaced.file, 0, SEEK_SET) != 0 ||
      !write_whole(replaced.file, step.source)) {
    return failure_.at("replace", step.path, -errno);
  }
  return true;
}

// CRITICAL: they can be written to, which nobody may do any more.
void RootBuilder::close_replaced() {
  for (; replaced_count_ > 0; --replaced_count_) {
    close(replaced_[replaced_count_ - 1].file);
  }
}

}  // namespace carrel::guest
