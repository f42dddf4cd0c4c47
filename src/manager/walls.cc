#include "manager/walls.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "backends/bubblewrap/bubblewrap.h"
#include "backends/docker/docker.h"
#include "backends/docker/engine.h"
#include "backends/docker/gvisor.h"
#include "backends/docker/kata.h"
#include "backends/microvm/boot_files.h"
#include "backends/microvm/microvm.h"
#include "backends/oci/gvisor.h"
#include "backends/oci/oci.h"
#include "policy/isolation.h"

namespace carrel::manager {

namespace {

// All that there are, in the order in which they are taken.
std::vector<policy::Candidate> known_walls() {
  using policy::Backend;
  return {{Backend::kNative},     {Backend::kOci, "runc"}, {Backend::kOci, "crun"},
          {Backend::kBubblewrap}, {Backend::kDocker},      {Backend::kOci, "runsc"},
          {Backend::kMicrovm}};
}

// Where the builder is, or what it builds with, as the environment of whoever asks says.
std::string engine_of(policy::Backend backend) {
  switch (backend) {
    case policy::Backend::kDocker:
      return docker::usual_address();
    case policy::Backend::kMicrovm:
      return microvm::usual_kernel();
    default:
      return {};
  }
}

}  // namespace

const sandbox::Walls* find_walls(policy::Backend backend, std::string_view runtime) {
  static const bubblewrap::Bubblewrap kBubblewrap;
  static const oci::Runtimes kRuntimes;
  static const docker::KnownEngines kEngines;
  static const docker::Containers kContainers(kEngines);
  static const docker::GvisorContainers kGvisorContainers(kEngines);
  static const docker::KataContainers kKataContainers(kEngines);
  static const oci::Gvisor kGvisor;
  static const microvm::Machines kMachines;
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
      if (policy::is_furnished_by_engine(backend, runtime)) {
        return &kGvisorContainers;
      }
      if (policy::is_machine_by_engine(backend, runtime)) {
        return &kKataContainers;
      }
      return &kContainers;
    case policy::Backend::kMicrovm:
      return &kMachines;
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
  spec.engine = engine_of(spec.backend);
  if (!spec.isolation.has_value() || spec.backend_choice == policy::BackendChoice::kNamed) {
    return policy::check_strength(spec);
  }
  if (!spec.runtime.empty()) {
    return Error{Code::kInvalid, 0,
                 "--runtime '" + spec.runtime + "' and --isolation choose the walls both",
                 "name the backend whose runtime it is: --backend oci, docker or microvm"};
  }
  std::vector<policy::Candidate> strong;
  for (policy::Candidate candidate : known_walls()) {
    if (policy::isolation_of(candidate.backend, candidate.runtime).strength < *spec.isolation) {
      continue;
    }
    policy::Spec asked;
    asked.runtime = candidate.runtime;
    asked.engine = engine_of(candidate.backend);
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
  spec.engine = engine_of(spec.backend);
  return {};
}

}  // namespace carrel::manager
