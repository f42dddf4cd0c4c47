#include "kernel/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "kernel/cgroup_entry.h"

namespace carrel::kernel {
namespace {

Status check_name(std::string_view name) {
  if (!is_group_name(name)) {
    std::string message = "'";
    message += name;
    message += "' is no name for a cgroup";
    return Error{Code::kInvalid, 0, std::move(message), "use 1 to 64 letters, digits, '-' and '_'"};
  }
  return {};
}

std::uint32_t bit(std::size_t index) { return 1U << index; }

}  // namespace

Cgroup::Cgroup(const CgroupLayout& layout, const std::string& id, CgroupOwnership ownership)
    : layout_(layout.state_.get()), name_(layout_->prefix + id), ownership_(ownership) {}

Cgroup::Cgroup(const Cgroup& parent, const std::string& leaf, CgroupOwnership ownership)
    : layout_(parent.layout_),
      name_(parent.name_ + "/" + leaf),
      parent_(parent.name_),
      ownership_(ownership) {}

Cgroup::Cgroup(Cgroup&& other) noexcept
    : layout_(other.layout_),
      name_(std::move(other.name_)),
      parent_(std::move(other.parent_)),
      leaves_(std::move(other.leaves_)),
      present_(std::exchange(other.present_, 0)),
      ownership_(std::exchange(other.ownership_, CgroupOwnership::kBorrowed)),
      enforced_(other.enforced_),
      v2_directory_(std::move(other.v2_directory_)) {}

Cgroup& Cgroup::operator=(Cgroup&& other) noexcept {
  if (this != &other) {
    remove_quietly();
    layout_ = other.layout_;
    name_ = std::move(other.name_);
    parent_ = std::move(other.parent_);
    leaves_ = std::move(other.leaves_);
    present_ = std::exchange(other.present_, 0);
    ownership_ = std::exchange(other.ownership_, CgroupOwnership::kBorrowed);
    enforced_ = other.enforced_;
    v2_directory_ = std::move(other.v2_directory_);
  }
  return *this;
}

Cgroup::~Cgroup() { remove_quietly(); }

void Cgroup::remove_quietly() {
  if (ownership_ == CgroupOwnership::kOwned && present_ != 0) {
    (void)remove();
  }
}

const CgroupHierarchy& Cgroup::hierarchy(std::size_t index) const {
  return layout_->hierarchies[index];
}

const std::string& Cgroup::group(std::size_t index) const {
  return exists_in(index) || parent_.empty() ? name_ : parent_;
}

Result<Cgroup> Cgroup::create(const CgroupLayout& layout, std::string_view id,
                              const CgroupLimits& limits) {
  CARREL_TRY(check_name(id));
  CARREL_TRY(check_limits(limits));
  Cgroup cgroup(layout, std::string(id), CgroupOwnership::kOwned);
  CARREL_TRY(cgroup.make(~0U, limits, Existing::kConflict));
  return cgroup;
}

Result<Cgroup> Cgroup::take(const CgroupLayout& layout, std::string_view id,
                            const CgroupLimits& limits) {
  CARREL_TRY(check_name(id));
  CARREL_TRY(check_limits(limits));
  Cgroup cgroup(layout, std::string(id), CgroupOwnership::kOwned);
  CARREL_TRY(cgroup.make(~0U, limits, Existing::kTaken));
  if (cgroup.has_processes()) {
    cgroup.release();
    return Error{Code::kConflict, 0, "cgroup '" + cgroup.name_ + "' has processes", {}};
  }
  return cgroup;
}

// A failure on the way leaves what was made to the destructor, which removes it.
Status Cgroup::make(std::uint32_t where, const CgroupLimits& limits, Existing existing) {
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    if ((where & bit(i)) == 0) {
      continue;
    }
    const CgroupHierarchy& at = hierarchy(i);
    const bool made = ::mkdirat(at.home.get(), name_.c_str(), 0755) == 0;
    if (!made && (errno != EEXIST || existing == Existing::kConflict)) {
      int reason = errno;
      Error error = system_error(reason, "create cgroup '" + at.directory + "/" + name_ + "'");
      if (reason == EEXIST) {
        error.code = Code::kConflict;
      } else if (reason == ENOSPC || reason == EAGAIN || reason == ENOMEM) {
        error.code = Code::kResource;
      }
      return error;
    }
    present_ |= bit(i);
    CARREL_TRY(write_limits(at.home.get(), name_, at.version, at.controllers, limits, enforced_));
  }
  return {};
}

Result<Cgroup> Cgroup::open(const CgroupLayout& layout, std::string_view id,
                            CgroupOwnership ownership) {
  CARREL_TRY(check_name(id));
  Cgroup cgroup(layout, std::string(id), CgroupOwnership::kBorrowed);
  CARREL_TRY(cgroup.find());
  cgroup.ownership_ = ownership;
  return cgroup;
}

Status Cgroup::find() {
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    struct stat info{};
    if (::fstatat(home(i), name_.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(info.st_mode)) {
      continue;
    }
    present_ |= bit(i);
    for (const std::string& child : child_groups(home(i), name_)) {
      std::string leaf = name_ + "/" + child;
      bool known = false;
      for (const std::string& other : leaves_) {
        known = known || other == leaf;
      }
      if (!known) {
        leaves_.push_back(std::move(leaf));
      }
    }
  }
  if (present_ == 0) {
    return Error{Code::kNotFound, 0, "there is no cgroup '" + name_ + "'", {}};
  }
  return {};
}

Result<Cgroup> Cgroup::subgroup(std::string_view name, const CgroupLimits& limits) {
  CARREL_TRY(check_name(name));
  CARREL_TRY(check_limits(limits));
  if (!parent_.empty()) {
    return Error{Code::kInvalid, 0, "cgroup '" + name_ + "' is a leaf",
                 "make leaves of its parent"};
  }
  std::uint32_t where = 0;
  if (layout_->v2 && exists_in(*layout_->v2)) {
    where |= bit(*layout_->v2);
    const CgroupHierarchy& v2 = hierarchy(*layout_->v2);
    if (leaves_.empty() && !v2.controllers.empty() &&
        enable_controllers(v2.home.get(), name_, v2.controllers) != v2.controllers) {
      return Error{Code::kConflict, 0,
                   "cgroup '" + name_ + "' cannot pass its controllers to a leaf",
                   "make leaves before a process is in the group"};
    }
  }
  auto need = [&](bool wanted, Controller controller) {
    std::optional<std::size_t> index = layout_->index[static_cast<unsigned>(controller)];
    if (wanted && index && exists_in(*index)) {
      where |= bit(*index);
    }
  };
  need(limits.memory_bytes.has_value(), Controller::kMemory);
  need(limits.pids.has_value(), Controller::kPids);
  need(limits.cpu_millis.has_value(), Controller::kCpu);
  if (where == 0) {
    return Error{Code::kUnsupported,
                 0,
                 "no cgroup hierarchy for the leaf '" + name_ + "/" + std::string(name) + "'",
                 {}};
  }

  Cgroup leaf(*this, std::string(name), CgroupOwnership::kOwned);
  CARREL_TRY(leaf.make(where, limits, Existing::kConflict));
  leaves_.push_back(leaf.name_);
  return leaf;
}

Result<Cgroup> Cgroup::open_subgroup(std::string_view name, CgroupOwnership ownership) {
  CARREL_TRY(check_name(name));
  Cgroup leaf(*this, std::string(name), CgroupOwnership::kBorrowed);
  CARREL_TRY(leaf.find());
  leaf.ownership_ = ownership;
  return leaf;
}

Status Cgroup::set_limits(const CgroupLimits& limits) {
  CARREL_TRY(check_limits(limits));
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    if (exists_in(i)) {
      const CgroupHierarchy& at = hierarchy(i);
      CARREL_TRY(write_limits(at.home.get(), name_, at.version, at.controllers, limits, enforced_));
    }
  }
  return {};
}

int Cgroup::clone_into_fd() {
  if (!v2_directory_.valid() && layout_->v2) {
    int fd = open_entry(home(*layout_->v2), group(*layout_->v2), "", O_RDONLY | O_DIRECTORY);
    v2_directory_.reset(fd < 0 ? -1 : fd);
  }
  return v2_directory_.get();
}

Result<std::vector<UniqueFd>> Cgroup::join_fds() const {
  std::vector<UniqueFd> fds;
  fds.reserve(layout_->hierarchies.size());
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    if (hierarchy(i).version != CgroupVersion::kV1) {
      continue;
    }
    int fd = open_entry(home(i), group(i), "tasks", O_WRONLY);
    if (fd < 0) {
      return system_error(-fd,
                          "open tasks of cgroup '" + hierarchy(i).directory + "/" + group(i) + "'");
    }
    fds.emplace_back(fd);
  }
  return fds;
}

Result<UniqueFd> Cgroup::procs_fd() const {
  if (!layout_->v2) {
    return UniqueFd();
  }
  int fd = open_entry(home(*layout_->v2), group(*layout_->v2), "cgroup.procs", O_WRONLY);
  if (fd < 0) {
    return system_error(-fd, "open cgroup.procs of cgroup '" + name_ + "'");
  }
  return UniqueFd(fd);
}

Status Cgroup::attach(pid_t pid) {
  std::string text = std::to_string(pid);
  for (std::size_t i = 0; i < layout_->hierarchies.size(); ++i) {
    if (int reason = write_entry(home(i), group(i), "cgroup.procs", text); reason != 0) {
      return system_error(reason, "move process " + text + " to cgroup '" + hierarchy(i).directory +
                                      "/" + group(i) + "'");
    }
  }
  return {};
}

}  // namespace carrel::kernel
