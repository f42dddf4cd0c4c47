#include "base/tree_visit.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/unique_fd.h"

namespace carrel {

namespace {

// A directory on the way down.
struct Step {
  std::string name;  // in the one before
  dev_t device = 0;
  ino_t inode = 0;
  std::vector<std::string> below;  // directories in it that are still to be entered
};

class Visitor {
 public:
  Visitor(int dir, const TreeVisit& visit) : dir_(dir), visit_(visit) {}

  Status run(const std::string& name) {
    CARREL_ASSIGN(const bool is_entered, visit_.meet(dir_, name));
    if (is_entered) {
      CARREL_TRY(enter(dir_, name));
    }
    while (!way_.empty()) {
      std::vector<std::string>& below = way_.back().below;
      if (below.empty()) {
        CARREL_TRY(climb());
        continue;
      }
      const std::string next = std::move(below.back());
      below.pop_back();
      CARREL_TRY(enter(here_.get(), next));
    }
    return {};
  }

 private:
  Status enter(int from, const std::string& name) {
    auto entries = DirectoryEntries::open_at(from, name);
    if (!entries.ok()) {
      return entries.error().error_number == ENOENT ? Status{} : Status{entries.error()};
    }
    Step step;
    step.name = name;
    struct stat info{};
    if (::fstat(entries->descriptor(), &info) != 0) {
      return system_error("look at '" + name + "'");
    }
    step.device = info.st_dev;
    step.inode = info.st_ino;
    // CRITICAL: what somebody mounts here meanwhile is not part of the tree.
    if (step.device != device_.value_or(step.device)) {
      return Error{Code::kConflict, 0, "'" + name + "' is on another file system", {}};
    }
    device_ = step.device;
    while (const dirent* entry = entries->next()) {
      std::string child = entry->d_name;
      CARREL_ASSIGN(const bool is_entered, visit_.meet(entries->descriptor(), child));
      if (is_entered) {
        step.below.push_back(std::move(child));
      }
    }
    CARREL_TRY(entries->failure());
    if (step.below.empty()) {
      return leave(from, name);
    }
    CARREL_ASSIGN(here_, open_at(entries->descriptor(), ".", O_PATH | O_DIRECTORY));
    way_.push_back(std::move(step));
    return {};
  }

  // To the directory above, which has to be the one that this came from.
  Status climb() {
    const std::string name = std::move(way_.back().name);
    way_.pop_back();
    if (way_.empty()) {
      return leave(dir_, name);
    }
    CARREL_ASSIGN(here_, open_at(here_.get(), "..", O_PATH | O_DIRECTORY));
    struct stat info{};
    if (::fstat(here_.get(), &info) != 0) {
      return system_error("look at what is above '" + name + "'");
    }
    if (info.st_dev != way_.back().device || info.st_ino != way_.back().inode) {
      return Error{Code::kConflict, 0, "'" + name + "' was moved while it was gone through", {}};
    }
    return leave(here_.get(), name);
  }

  Status leave(int directory, const std::string& name) {
    return visit_.leave ? visit_.leave(directory, name) : Status();
  }

  int dir_;
  const TreeVisit& visit_;
  std::optional<dev_t> device_;  // of the tree
  std::vector<Step> way_;
  UniqueFd here_;  // the last of it
};

}  // namespace

Status visit_tree(int dir, const std::string& name, const TreeVisit& visit) {
  return Visitor(dir, visit).run(name);
}

}  // namespace carrel
