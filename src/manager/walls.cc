#include "manager/walls.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "backends/bubblewrap/bubblewrap.h"
#include "backends/docker/docker.h"
#include "backends/docker/engine.h"
#include "backends/oci/gvisor.h"
#include "backends/oci/oci.h"
#include "policy/isolation.h"

namespace carrel::manager {

namespace {

// All that there are, in the order in which they are taken.
std::vector<policy::Candidate> known_walls() {
  using policy::Backend;
  return {{Backend::kNative},
          {Backend::kOci, "runc"},
          {Backend::kOci, "crun"},
          {Backend::kBubblewrap},
          {Backend::kDocker},
          {Backend::kOci, "runsc"}};
}

}  // namespace

const sandbox::Walls* find_walls(policy::Backend backend, std::string_view runtime) {
  static const bubblewrap::Bubblewrap kBubblewrap;
  static const oci::Runtimes kRuntimes;
  static const docker::Containers kContainers;
  static const oci::Gvisor kGvisor;
  switch (backend) {
    case policy::Backend::kOci:
      // CRITICAL: never another in the place of gVisor.
      if (runtime == "runsc") {
        return &kGvisor;
      }
      return &kRuntimes;
    case policy::Backend::kBubblewrap:
      return &kBubblewrap;
    case policy::Backend::kDocker:
      return &kContainers;
    case policy::Backend::kNative:
      break;
  }
  return nullptr;
}

Status settle_walls(policy::Spec& spec) {
  if (spec.backend == policy::Backend::kDocker && ::geteuid() != 0 && !spec.cgroup_parent.empty()) {
    return Error{Code::kUnsupported, 0,
                 "--cgroup-parent with --backend docker is only for root: nobody else can take a "
                 "process out of a control group of the engine's",
                 "leave it out: the engine holds the limits"};
  }
  // A keeper makes it, whose environment is that of whoever came first.
  spec.engine = spec.backend == policy::Backend::kDocker ? docker::usual_address() : std::string();
  if (!spec.isolation.has_value() || spec.backend_choice == policy::BackendChoice::kNamed) {
    return policy::check_strength(spec);
  }
  if (!spec.runtime.empty()) {
    return Error{Code::kInvalid, 0,
                 "--runtime '" + spec.runtime + "' and --isolation choose the walls both",
                 "name the backend whose runtime it is: --backend oci or --backend docker"};
  }
  std::vector<policy::Candidate> strong;
  for (policy::Candidate candidate : known_walls()) {
    if (policy::isolation_of(candidate.backend, candidate.runtime).strength < *spec.isolation) {
      continue;
    }
    policy::Spec asked;
    asked.runtime = candidate.runtime;
    if (const sandbox::Walls* walls = find_walls(candidate.backend, candidate.runtime);
        walls != nullptr) {
      if (const auto builder = walls->describe(asked); !builder.ok()) {
        candidate.missing = builder.error().message;
      }
    }
    strong.push_back(std::move(candidate));
  }
  CARREL_ASSIGN(policy::Candidate chosen, policy::choose_walls(*spec.isolation, strong));
  spec.backend = chosen.backend;
  spec.runtime = std::move(chosen.runtime);
  spec.engine = spec.backend == policy::Backend::kDocker ? docker::usual_address() : std::string();
  return {};
}

}  // namespace carrel::manager
