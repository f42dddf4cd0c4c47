#pragma once

#include <string>

#include "support/process.h"

namespace carrel::test {

// A control group of the ordinary user's own in every hierarchy, as a service manager would
// delegate it; made by root, and removed at the end with everything below it. What `launch` starts
// is moved into it first: a user can only move processes within what is his.
class GivenGroups {
 public:
  GivenGroups();
  ~GivenGroups();
  GivenGroups(const GivenGroups&) = delete;
  GivenGroups& operator=(const GivenGroups&) = delete;

  // For --cgroup-parent.
  [[nodiscard]] const std::string& path() const { return path_; }

  // Runs the program as the user, inside the group, to its end.
  Run carrel(std::vector<std::string> arguments, const Options& options = {}) const;

  // The directories of all sandboxes below it; empty when none is left.
  [[nodiscard]] std::string left() const;

 private:
  std::string path_;  // from the mount of each hierarchy, with a leading slash
};

}  // namespace carrel::test
