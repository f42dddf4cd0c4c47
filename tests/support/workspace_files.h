#pragma once

#include <string>

#include "base/unique_fd.h"
#include "support/process.h"

namespace carrel::test {

// The files of a workspace as the host has them, also where they are in a file system of their own:
// that is mounted for as long as this object lives, nowhere.
class WorkspaceFiles {
 public:
  WorkspaceFiles(As as, const std::string& workspace);

  // Of the directory that has `tree`; for children of this process, too.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string tree() const { return path_ + "/tree"; }

 private:
  UniqueFd top_;
  std::string path_;
};

// The loop devices that have a file of that user's, by the file's path.
std::string loop_devices_of(As as);

}  // namespace carrel::test
