#include "storage/disk_use.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>

#include "base/files.h"
#include "base/tree_visit.h"

namespace carrel::storage {

namespace {

constexpr std::array<std::string_view, kKeptKinds> kKeptNames = {
    "images", "downloads", "workspaces", "snapshots", "machines", "flows", "logs", "state"};

// The names in CARREL_HOME. What begins like this belongs there, so that a database's other files
// do. The first one that fits decides.
struct KeptPlace {
  std::string_view beginning;
  KeptFor kind;
};
constexpr std::array kKeptPlaces = {
    KeptPlace{"images/downloads", KeptFor::kDownloads},
    KeptPlace{"images", KeptFor::kImages},
    KeptPlace{"workspaces", KeptFor::kWorkspaces},
    KeptPlace{"layers", KeptFor::kSnapshots},
    KeptPlace{"machines", KeptFor::kMachines},
    KeptPlace{"journal.db", KeptFor::kFlows},
    KeptPlace{"agents", KeptFor::kFlows},
    KeptPlace{"flows", KeptFor::kFlows},
    KeptPlace{"events.jsonl", KeptFor::kLogs},
    KeptPlace{"net/log", KeptFor::kLogs},
};

KeptFor purpose_of(const std::string& path) {
  for (const KeptPlace& place : kKeptPlaces) {
    if (path.starts_with(place.beginning)) {
      return place.kind;
    }
  }
  return KeptFor::kState;
}

class DiskCount {
 public:
  static Result<DiskCount> of(const Home& home) {
    struct stat info{};
    if (::fstat(home.directory(), &info) != 0) {
      return system_error("look at the state directory");
    }
    return DiskCount(info.st_dev);
  }

  void add_top(const Home& home) {
    struct stat info{};
    if (::fstat(home.directory(), &info) == 0) {
      uses_.at(static_cast<std::size_t>(KeptFor::kState)).bytes +=
          static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
  }

  // What `path` in `directory` is, and what is below it, for one purpose.
  Status add_all(int directory, const std::string& path) {
    DiskUse& use = uses_.at(static_cast<std::size_t>(purpose_of(path)));
    return visit_tree(directory, path, {.meet = [&](int in, const std::string& name) {
                        return add(in, name, use);
                      }});
  }

  // The same of a name in CARREL_HOME, where what is in a directory decides what it is for.
  Status add_named(int home, const std::string& name) {
    DiskUse& use = uses_.at(static_cast<std::size_t>(purpose_of(name)));
    CARREL_ASSIGN(const bool is_directory, add(home, name, use));
    if (!is_directory) {
      return {};
    }
    auto entries = DirectoryEntries::open_at(home, name);
    if (!entries.ok()) {
      return entries.error().error_number == ENOENT ? Status{} : Status{entries.error()};
    }
    while (const dirent* entry = entries->next()) {
      CARREL_TRY(add_all(home, name + "/" + entry->d_name));
    }
    return entries->failure();
  }

  [[nodiscard]] std::array<DiskUse, kKeptKinds> uses() const { return uses_; }

 private:
  explicit DiskCount(dev_t device) : device_(device) {}

  // Whether it is a directory that belongs to what is counted.
  Result<bool> add(int directory, const std::string& name, DiskUse& use) {
    struct stat info{};
    if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return errno == ENOENT ? Result<bool>(false) : system_error("look at '" + name + "'");
    }
    if (info.st_dev != device_) {
      return false;  // something that is mounted there
    }
    const bool is_directory = S_ISDIR(info.st_mode);
    if (is_directory || info.st_nlink < 2 || seen_.insert(info.st_ino).second) {
      use.bytes += static_cast<std::uint64_t>(info.st_blocks) * 512;
      use.files += is_directory ? 0U : 1U;
    }
    return is_directory;
  }

  dev_t device_;
  std::array<DiskUse, kKeptKinds> uses_;
  std::set<ino_t> seen_;  // those with several names
};

}  // namespace

std::string_view name_of(KeptFor kind) { return kKeptNames.at(static_cast<std::size_t>(kind)); }

Result<std::array<DiskUse, kKeptKinds>> look_at_disk_use(const Home& home) {
  CARREL_ASSIGN(DiskCount count, DiskCount::of(home));
  count.add_top(home);
  CARREL_ASSIGN(DirectoryEntries entries, DirectoryEntries::open_at(home.directory(), "."));
  while (const dirent* entry = entries.next()) {
    CARREL_TRY(count.add_named(home.directory(), entry->d_name));
  }
  CARREL_TRY(entries.failure());
  return count.uses();
}

Result<DiskUse> look_at_disk_use_of(const Home& home, const std::string& path) {
  CARREL_ASSIGN(DiskCount count, DiskCount::of(home));
  CARREL_TRY(count.add_all(home.directory(), path));
  DiskUse all;
  for (const DiskUse& use : count.uses()) {
    all.bytes += use.bytes;
    all.files += use.files;
  }
  return all;
}

}  // namespace carrel::storage
