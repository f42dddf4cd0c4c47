#include "storage/mount_facts.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "storage/user_homes.h"

namespace carrel::storage {

namespace {

using policy::FileKind;
using policy::Reach;

int open_with(int folder, const std::string& path, std::uint64_t resolve) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = resolve;
  return static_cast<int>(::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
}

// Component by component, for kernels that lack the call (before 5.6) and filters that know it not:
// no link is followed at all.
int open_without_links(const std::string& path) {
  UniqueFd at(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::string_view rest = path;
  while (at.valid() && !rest.empty()) {
    const std::string part(rest.substr(0, rest.find('/')));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.empty()) {
      continue;
    }
    UniqueFd next(::openat(at.get(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info{};
    if (next.valid() && ::fstat(next.get(), &info) == 0 && S_ISLNK(info.st_mode)) {
      next.reset();
      errno = ELOOP;
    }
    at = std::move(next);
  }
  return at.release();
}

int open_source(const std::string& path) {
  int fd = open_with(AT_FDCWD, path, RESOLVE_NO_MAGICLINKS);
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
    fd = open_without_links(path);
  }
  return fd;
}

Result<FileKind> obstacle_of(int reason, const std::string& source) {
  switch (reason) {
    case ENOENT:
    case ENOTDIR:
      return FileKind::kMissing;
    case EACCES:
      return FileKind::kDenied;
    case ELOOP:
      return FileKind::kMaze;
    default:
      return system_error(reason, "open '" + source + "'");
  }
}

// Where paths lead. Those of which only the beginning exists, or can be reached, are where they
// would be.
class Locator {
 public:
  explicit Locator(const std::vector<HostMount>& table) : table_(table) {}

  Result<policy::Location> find(const std::string& path) {
    if (const auto known = known_.find(path); known != known_.end()) {
      return known->second;
    }
    const UniqueFd fd(::open(path.c_str(), O_PATH | O_CLOEXEC));
    policy::Location location;
    if (fd.valid()) {
      CARREL_ASSIGN(location, locate(fd.get(), table_));
    } else if (path == "/") {
      return system_error("open '/'");
    } else {
      const std::size_t slash = path.rfind('/');
      CARREL_ASSIGN(location, find(slash == 0 ? "/" : path.substr(0, slash)));
      const std::string name = path.substr(slash + 1);
      location.path = policy::path_below(location.path, name);
      location.path_on_device = policy::path_below(location.path_on_device, name);
    }
    known_.emplace(path, location);
    return location;
  }

 private:
  const std::vector<HostMount>& table_;
  std::map<std::string, policy::Location> known_;
};

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 || slash == std::string::npos ? std::string("/") : path.substr(0, slash);
}

Result<std::string> real_path(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) {
    return system_error("find '" + path + "'");
  }
  std::string found(real);
  std::free(real);
  return found;
}

}  // namespace

Result<std::vector<policy::ForbiddenPath>> host_forbidden_paths(const OwnPlaces& own) {
  CARREL_ASSIGN(const std::vector<std::string> homes, user_homes());
  std::vector<policy::ForbiddenPath> paths = policy::forbidden_paths(homes);
  if (!own.state.empty()) {
    paths.push_back({policy::folded_path(own.state), Reach::kBelowAndAbove});
  }
  if (!own.policy_file.empty()) {
    CARREL_ASSIGN(const std::string file, real_path(own.policy_file));
    paths.push_back({file, Reach::kBelowAndAbove});
    paths.push_back({folder_of(file), Reach::kAbove});
  }
  // Whoever could change the program would be run by the next one who starts it.
  if (auto program = real_path("/proc/self/exe"); program.ok()) {
    paths.push_back({program.value(), Reach::kAboveIfWritable});
    paths.push_back({folder_of(program.value()), Reach::kAboveIfWritable});
  }
  return paths;
}

Result<MountJudge> MountJudge::open(const std::vector<policy::ForbiddenPath>& forbidden) {
  MountJudge judge;
  CARREL_ASSIGN(judge.table_, read_mount_table());
  Locator locator(judge.table_);
  for (const policy::ForbiddenPath& path : forbidden) {
    CARREL_ASSIGN(policy::Location location, locator.find(path.path));
    judge.forbidden_.push_back({path, std::move(location)});
  }
  return judge;
}

std::vector<policy::SubMount> MountJudge::mounts_in(int top, const std::string& path) const {
  std::vector<policy::SubMount> mounts;
  for (const HostMount& mount : table_) {
    if (mount.mount_point == path || !policy::path_holds(path, mount.mount_point)) {
      continue;
    }
    policy::SubMount found;
    found.path = mount.mount_point.substr(path == "/" ? 1 : path.size() + 1);
    found.at = {mount.mount_point, mount.device, policy::folded_path(mount.root),
                mount.file_system};
    struct stat info{};
    if (::fstatat(top, found.path.c_str(), &info, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0) {
      found.kind = kind_of(info.st_mode);
      found.id = {info.st_dev, info.st_ino};
    }
    mounts.push_back(std::move(found));
  }
  return mounts;
}

Status MountJudge::look_through(int source, policy::MountFacts& facts,
                                const WalkLimits& limits) const {
  ForbiddenFiles forbidden(forbidden_);
  if (facts.kind == FileKind::kFolder) {
    facts.mounts = mounts_in(source, facts.real.path);
    CARREL_ASSIGN(WalkedTree tree, walk_tree(source, facts.mounts, forbidden, limits));
    facts.noticed = std::move(tree.noticed);
    facts.examined = tree.examined;
    return {};
  }
  struct stat info{};
  if (::fstat(source, &info) != 0) {
    return system_error("look at '" + facts.real.path + "'");
  }
  if (info.st_nlink > 1) {
    CARREL_ASSIGN(const bool held, forbidden.hold(facts.id));
    if (held) {
      facts.noticed.push_back({"", facts.kind, facts.id, policy::Noticed::kForbiddenLink});
    }
  }
  return {};
}

Result<JudgedMount> MountJudge::judge(const policy::MountGrants& grants,
                                      const MountQuestion& question,
                                      const WalkLimits& limits) const {
  JudgedMount judged;
  policy::MountFacts facts;
  facts.asked = policy::folded_path(question.source);
  facts.forbidden = forbidden_;
  judged.source.reset(open_source(question.source));
  if (!judged.source.valid()) {
    CARREL_ASSIGN(facts.kind, obstacle_of(errno, question.source));
    judged.decision = policy::decide_mount(grants, facts, question.mode);
    return judged;
  }
  const int fd = judged.source.get();
  struct stat info{};
  if (::fstat(fd, &info) != 0) {
    return system_error("look at '" + question.source + "'");
  }
  facts.kind = kind_of(info.st_mode);
  facts.id = {info.st_dev, info.st_ino};
  CARREL_ASSIGN(facts.real, locate(fd, table_));
  judged.decision = policy::decide_mount(grants, facts, question.mode);
  if (judged.decision.allowed) {
    CARREL_TRY(look_through(fd, facts, limits));
    judged.decision = policy::decide_mount(grants, facts, question.mode);
  }
  return judged;
}

Result<JudgedMount> MountJudge::grant(const policy::MountGrants& grants,
                                      const MountQuestion& question) const {
  CARREL_ASSIGN(JudgedMount judged, judge(grants, question));
  if (!judged.decision.allowed) {
    return policy::mount_error(question.source, judged.decision);
  }
  return judged;
}

}  // namespace carrel::storage
