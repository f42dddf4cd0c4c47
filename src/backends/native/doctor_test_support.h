#pragma once

#include "backends/native/doctor_facts.h"

namespace carrel::native::testing_support {

// Made-up facts of a host where everything works, for root; tests break one thing at a time.
inline DoctorFacts healthy_facts() {
  DoctorFacts facts;
  facts.features.values.fill(0);
  facts.landlock_abi = 7;
  facts.settings.max_user_namespaces = 60000;
  facts.settings.max_net_namespaces = 60000;
  facts.settings.io_uring_disabled = 2;
  facts.settings.core_pattern = "core";
  facts.around.kernel = "6.1.0";
  facts.around.capabilities = ~0ULL;
  facts.groups.tried = true;
  facts.groups.has_v2 = true;
  for (LimitFacts* limit : {&facts.groups.memory, &facts.groups.cpu, &facts.groups.pids}) {
    limit->source = kernel::CgroupSource::kCgroupV2;
    limit->held = true;
  }
  facts.state.path = "/state";
  facts.state.free_bytes = 10ULL << 30;
  facts.state.free_files = 1'000'000;
  facts.disk.tried = true;
  facts.disk.held = true;
  facts.sandbox.ran = true;
  facts.sandbox.exit_code = 0;
  facts.has_bash = true;
  facts.has_python = true;
  return facts;
}

inline DoctorFacts healthy_facts_of_user() {
  DoctorFacts facts = healthy_facts();
  facts.around.uid = 1000;
  facts.around.user = "anna";
  facts.around.capabilities = 0;
  facts.delegation.state = DelegationFacts::State::kOwnGroup;
  return facts;
}

// The same where no control group is given to the user.
inline DoctorFacts facts_without_groups() {
  DoctorFacts facts = healthy_facts_of_user();
  facts.groups.has_v2 = false;
  facts.groups.why_no_v2 = "'/groups': Permission denied";
  facts.delegation = {DelegationFacts::State::kNone, "there is no systemd of this user's"};
  for (LimitFacts* limit : {&facts.groups.memory, &facts.groups.cpu, &facts.groups.pids}) {
    *limit = LimitFacts{};
    limit->why_missing = "'/groups': Permission denied";
  }
  facts.features.set(Feature::kCloneIntoCgroup, kNotTried);
  facts.features.set(Feature::kCgroupKill, kNotTried);
  return facts;
}

// The same where `feature` fails, and with it the sandbox.
inline DoctorFacts broken(DoctorFacts facts, Feature feature, int outcome) {
  facts.features.set(feature, outcome);
  facts.sandbox.ran = false;
  facts.sandbox.error = "Failed to create sandbox";
  return facts;
}

}  // namespace carrel::native::testing_support
