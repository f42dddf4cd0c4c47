#include "policy/backend.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace carrel::policy {

namespace {

// In the order of Backend.
constexpr std::array<std::string_view, 5> kNames = {"native", "bubblewrap", "oci", "docker",
                                                    "microvm"};
// In the order of Strength.
constexpr std::array<std::string_view, 3> kStrengths = {"namespace", "gvisor", "vm"};

}  // namespace

std::string_view name_of(Backend backend) { return kNames.at(static_cast<std::size_t>(backend)); }

std::optional<Backend> backend_named(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  return found == kNames.end() ? std::nullopt
                               : std::optional(static_cast<Backend>(found - kNames.begin()));
}

Furnisher furnisher_of(Backend backend) {
  const bool guest =
      backend == Backend::kNative || backend == Backend::kDocker || backend == Backend::kMicrovm;
  return guest ? Furnisher::kGuest : Furnisher::kBuilder;
}

std::string_view name_of(Strength strength) {
  return kStrengths.at(static_cast<std::size_t>(strength));
}

std::optional<Strength> strength_named(std::string_view name) {
  const auto found = std::find(kStrengths.begin(), kStrengths.end(), name);
  return found == kStrengths.end()
             ? std::nullopt
             : std::optional(static_cast<Strength>(found - kStrengths.begin()));
}

bool has_runtimes(Backend backend) {
  return backend == Backend::kOci || backend == Backend::kDocker || backend == Backend::kMicrovm;
}

Isolation isolation_of(Backend backend, std::string_view runtime) {
  const auto of = [](Strength strength, std::string_view note) {
    return Isolation{strength, name_of(strength), note};
  };
  // CRITICAL: a name says nothing about walls that no runtime builds.
  if (!has_runtimes(backend)) {
    runtime = {};
  }
  if (backend == Backend::kMicrovm) {
    return of(Strength::kVm, "a virtual machine; it has a kernel of its own");
  }
  // A runtime that is known by its name is the same whoever starts it.
  if (runtime == "runsc") {
    return of(Strength::kGvisor, "gVisor; the host's kernel sees few of its system calls");
  }
  if (backend == Backend::kDocker && runtime.starts_with("kata")) {
    return of(Strength::kNamespace,
              "unverified: a virtual machine by the word of an engine, which proves nothing");
  }
  if (runtime == "kata") {
    return of(Strength::kVm, "a virtual machine; it has a kernel of its own");
  }
  switch (backend) {
    case Backend::kNative:
    case Backend::kBubblewrap:
    case Backend::kOci:
    case Backend::kDocker:
    case Backend::kMicrovm:
      break;
  }
  return of(Strength::kNamespace, "namespaces; the host's kernel is shared");
}

}  // namespace carrel::policy
