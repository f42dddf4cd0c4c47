#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/native/enforcement.h"
#include "backends/native/given_tree.h"
#include "backends/native/one_shot.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "manager/once.h"
#include "policy/spec.h"
#include "sandbox/exec_result.h"
#include "sandbox/walls.h"
#include "storage/home.h"

namespace carrel::verify {

// The sandboxes that are attacked: one for each probe, as `carrel run` makes them, so that nothing
// of them is left when this process ends.
class Rooms {
 public:
  struct Subject {
    policy::Spec spec;                     // its image and mounts are not resolved yet
    std::vector<native::GivenTree> trees;  // its mounts
    manager::Chosen chosen = {};
    sandbox::FindWalls find_walls = sandbox::find_no_walls;
    int interrupt = -1;  // readable: everything ends
  };
  Rooms(storage::Home& home, Subject subject);

  // Resolves the image. kUnsupported where the probes cannot be brought into a sandbox.
  Status open();
  [[nodiscard]] const policy::Spec& spec() const { return spec_; }
  // What holds them in, as the first of them said.
  [[nodiscard]] const native::Enforcement& enforcement() const { return enforcement_; }

  struct Visit {
    std::string_view probe;
    std::vector<std::string> arguments = {};
    policy::Limits limits = {};
    std::chrono::milliseconds timeout{60'000};
    // Called with what was said so far; true: enough, end it.
    std::function<bool(const std::string& output)> on_output = {};
  };
  // The limits of the policy, as far as probes can be brought in with them.
  [[nodiscard]] policy::Limits usual_limits() const;
  // A probe in a sandbox of its own. Both outputs are in the result.
  Result<sandbox::ExecResult> visit(const Visit& visit);
  [[nodiscard]] bool interrupted() const;

 private:
  storage::Home* home_;
  Subject subject_;
  policy::Spec spec_;
  manager::OnceHeld held_;
  native::OneShots shots_;
  native::Enforcement enforcement_;
  std::string place_;  // a folder inside that the probe is written to
  UniqueFd program_;
};

}  // namespace carrel::verify
