#include "policy/isolation.h"

namespace carrel::policy {

namespace {

std::string words_of(const Candidate& candidate) {
  return std::string(name_of(candidate.backend)) +
         (candidate.runtime.empty() ? "" : " with " + candidate.runtime);
}

}  // namespace

bool is_furnished_by_engine(Backend backend, std::string_view runtime) {
  return backend == Backend::kDocker && runtime.starts_with("runsc");
}

bool is_machine_by_engine(Backend backend, std::string_view runtime) {
  return backend == Backend::kDocker && runtime.starts_with("kata");
}

Result<Candidate> choose_walls(Strength wanted, std::span<const Candidate> candidates) {
  std::string missing;
  for (const Strength strength : {Strength::kNamespace, Strength::kGvisor, Strength::kVm}) {
    for (const Candidate& candidate : candidates) {
      if (strength < wanted ||
          isolation_of(candidate.backend, candidate.runtime).strength != strength) {
        continue;
      }
      if (candidate.missing.empty()) {
        return candidate;
      }
      missing += (missing.empty() ? "" : "; ") + words_of(candidate) + ": " + candidate.missing;
    }
  }
  return Error{Code::kUnsupported, 0,
               "no backend here is as strong as '" + std::string(name_of(wanted)) +
                   "': " + (missing.empty() ? "this version has none" : missing),
               "run 'carrel doctor'"};
}

Status check_strength(const Spec& spec) {
  if (!spec.runtime.empty() && !has_runtimes(spec.backend)) {
    return Error{Code::kInvalid, 0,
                 "the backend '" + std::string(name_of(spec.backend)) + "' has no runtime '" +
                     spec.runtime + "'",
                 "a runtime is of --backend oci, docker or microvm"};
  }
  const Isolation isolation = isolation_of(spec.backend, spec.runtime);
  if (!spec.isolation.has_value() || isolation.strength >= *spec.isolation) {
    return {};
  }
  return Error{Code::kUnsupported, 0,
               "the backend '" + std::string(name_of(spec.backend)) + "' is of strength '" +
                   std::string(isolation.kind) + "', which is weaker than '" +
                   std::string(name_of(*spec.isolation)) + "'",
               "leave out --backend, and one that is strong enough is chosen"};
}

}  // namespace carrel::policy
