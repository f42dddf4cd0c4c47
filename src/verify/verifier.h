#pragma once

#include <functional>
#include <vector>

#include "backends/native/given_tree.h"
#include "base/result.h"
#include "manager/image_spec.h"
#include "policy/spec.h"
#include "sandbox/walls.h"
#include "storage/home.h"
#include "verify/attack_table.h"
#include "verify/report.h"

namespace carrel::verify {

// What is to be verified, and how.
struct Request {
  policy::Spec spec;
  // The spec's mounts, opened and judged, all of them read-only.
  std::vector<native::GivenTree> trees;
  manager::Chosen chosen = {};
  sandbox::FindWalls find_walls = sandbox::find_no_walls;
  Selection only = {};
  int interrupt = -1;  // readable: everything ends, with EINTR
  // Told before a group begins.
  std::function<void(Group)> on_group = {};
  std::function<void(const Finding&)> on_finding = {};
};

// The spec as it is attacked: without what would lead to something of the user's that can be
// changed. What was left out or narrowed is told in `notes`.
policy::Spec attackable(policy::Spec spec, std::vector<std::string>& notes);

// Makes sandboxes of the spec and attacks each from inside, in this process, which must be one of
// its own: it plants a variable and descriptors. An error is what kept it from trying; what got
// through is in the report.
Result<Report> verify(storage::Home& home, Request request);

}  // namespace carrel::verify
