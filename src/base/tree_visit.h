#pragma once

#include <functional>
#include <string>

#include "base/result.h"

namespace carrel {

// How a tree is gone through that somebody else made, and may be changing. It may be deeper than a
// process may have descriptors or a thread has stack: neither grows with the depth.
struct TreeVisit {
  // Called for each name but those of `.` and `..`, with the directory that it is in. Whether it is
  // a directory that is to be entered.
  std::function<Result<bool>(int directory, const std::string& name)> meet;
  // Called after everything in a directory that was entered.
  std::function<Status(int directory, const std::string& name)> leave = {};
};

// Begins with `name` in `dir` itself. No link is followed. What is gone when it is to be entered is
// left out; a directory that was moved away while it was gone through is kConflict, and so is one
// that is to be entered and is on another file system than the first.
Status visit_tree(int dir, const std::string& name, const TreeVisit& visit);

}  // namespace carrel
