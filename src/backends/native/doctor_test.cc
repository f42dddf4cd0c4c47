#include "backends/native/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "backends/native/doctor_test_support.h"

namespace carrel::native {
namespace {

using testing::HasSubstr;
using testing_support::broken;
using testing_support::facts_without_groups;
using testing_support::healthy_facts;
using testing_support::healthy_facts_of_user;

const Check& check_of(const Diagnosis& diagnosis, std::string_view name) {
  for (const Check& check : diagnosis.checks) {
    if (check.name == name) {
      return check;
    }
  }
  static const Check none;
  ADD_FAILURE() << "there is no check " << name;
  return none;
}

CheckStatus status_of(const DoctorFacts& facts, std::string_view name) {
  return check_of(diagnose(facts), name).status;
}

TEST(Doctor, AHealthyHostHasOnlyOkChecks) {
  const Diagnosis diagnosis = diagnose(healthy_facts());
  EXPECT_TRUE(diagnosis.ok);
  EXPECT_EQ(diagnosis.verdict, "Sandboxes work here, with everything in force.");
  for (const Check& check : diagnosis.checks) {
    EXPECT_EQ(check.status, CheckStatus::kOk) << check.name << ": " << check.detail;
    EXPECT_EQ(check.fix, "") << check.name;
    EXPECT_NE(check.detail, "") << check.name;
  }
}

TEST(Doctor, NamesAreUnique) {
  std::set<std::string> names;
  for (const Check& check : diagnose(healthy_facts()).checks) {
    EXPECT_TRUE(names.insert(check.name).second) << check.name;
  }
  EXPECT_GE(names.size(), kFeatureCount);
  EXPECT_EQ(names.count("unknown"), 0U);
}

TEST(Doctor, EveryFailedFeatureHasAReasonAndSomethingToDo) {
  for (unsigned i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    for (int outcome : {kDiedTrying, EPERM, EACCES, ENOSYS, EINVAL, ENOSPC, ENODEV, EIO}) {
      const Diagnosis diagnosis = diagnose(broken(healthy_facts(), feature, outcome));
      const Check& check = check_of(diagnosis, feature_name(feature));
      EXPECT_EQ(check.status, CheckStatus::kMissing);
      EXPECT_NE(check.detail, "") << check.name << " " << outcome;
      EXPECT_NE(check.fix, "") << check.name << " " << outcome;
      EXPECT_FALSE(diagnosis.ok);
    }
  }
}

TEST(Doctor, WhatHasASubstituteIsMissingAndSandboxesWork) {
  for (Feature feature :
       {Feature::kClone3, Feature::kOpenat2, Feature::kCloseRange, Feature::kPidfd,
        Feature::kLandlock, Feature::kMountSetattr, Feature::kTimeNamespace,
        Feature::kCloneIntoCgroup, Feature::kCgroupKill, Feature::kCaptiveNetwork}) {
    DoctorFacts facts = healthy_facts();
    facts.features.set(feature, ENOSYS);
    const Diagnosis diagnosis = diagnose(facts);
    EXPECT_EQ(check_of(diagnosis, feature_name(feature)).status, CheckStatus::kMissing);
    EXPECT_TRUE(diagnosis.ok);
    EXPECT_THAT(diagnosis.verdict, HasSubstr(std::string(feature_name(feature))));
  }
}

TEST(Doctor, TheVerdictNamesTheFirstCauseAndItsFix) {
  DoctorFacts facts = broken(healthy_facts_of_user(), Feature::kUserNamespace, EPERM);
  facts.settings.unprivileged_userns_clone = 0;
  facts.features.set(Feature::kProc, kNotTried);
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_THAT(diagnosis.verdict, HasSubstr("Sandboxes do not work here. user_namespace: "));
  EXPECT_THAT(diagnosis.verdict, HasSubstr("sudo sysctl -w kernel.unprivileged_userns_clone=1"));
  EXPECT_EQ(diagnosis.verdict.find('\n'), std::string::npos);
  EXPECT_EQ(check_of(diagnosis, "sandbox").fix,
            "sudo sysctl -w kernel.unprivileged_userns_clone=1");
}

TEST(Doctor, WhatWasNotTriedIsNotTheCause) {
  DoctorFacts facts = broken(healthy_facts(), Feature::kLandlock, kDiedTrying);
  facts.features.set(Feature::kSeccomp, kNotTried);
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_THAT(diagnosis.verdict, HasSubstr("landlock: the process that tried it was killed"));
  EXPECT_FALSE(check_of(diagnosis, "seccomp").tried);
  EXPECT_EQ(check_of(diagnosis, "seccomp").status, CheckStatus::kMissing);
}

TEST(Doctor, SandboxesWorkWithoutLandlockAndOverlay) {
  DoctorFacts facts = healthy_facts();
  facts.features.set(Feature::kLandlock, ENOSYS);
  facts.features.set(Feature::kOverlay, ENODEV);
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_TRUE(diagnosis.ok);
  EXPECT_EQ(diagnosis.verdict, "Sandboxes work here; missing: landlock, overlay.");
}

TEST(Doctor, SandboxesWorkWithoutControlGroupsAndThatIsSaid) {
  const Diagnosis diagnosis = diagnose(facts_without_groups());
  EXPECT_TRUE(diagnosis.ok);
  EXPECT_EQ(diagnosis.verdict,
            "Sandboxes work here; missing: clone_into_cgroup, cgroup_kill, delegation, memory, "
            "cpu, pids, disk.");
  EXPECT_THAT(check_of(diagnosis, "memory").detail, HasSubstr("a watchdog stands in"));
  EXPECT_THAT(check_of(diagnosis, "cpu").detail, HasSubstr("processors stands in"));
  EXPECT_THAT(check_of(diagnosis, "pids").detail, HasSubstr("RLIMIT_NPROC stands in"));
}

TEST(Doctor, ALimitThatTheKernelDoesNotHoldIsMissing) {
  DoctorFacts facts = healthy_facts();
  facts.groups.memory.held = false;
  EXPECT_EQ(status_of(facts, "memory"), CheckStatus::kMissing);
  EXPECT_EQ(status_of(facts, "pids"), CheckStatus::kOk);
}

TEST(Doctor, AFailedSandboxIsAFailureEvenIfEveryPartWorks) {
  DoctorFacts facts = healthy_facts();
  facts.sandbox.exit_code = 1;
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_FALSE(diagnosis.ok);
  EXPECT_THAT(diagnosis.verdict, HasSubstr("sandbox: /bin/true ended with 1"));
}

TEST(Doctor, AnImageWithoutTrueStillHasASandbox) {
  DoctorFacts facts = healthy_facts();
  facts.sandbox.exit_code = 127;
  EXPECT_TRUE(diagnose(facts).ok);
}

TEST(Doctor, AnUnusableStateDirectoryIsTheCause) {
  DoctorFacts facts = healthy_facts();
  facts.state.error = "the state directory '/state' belongs to another user";
  facts.state.hint = "set CARREL_HOME to a directory of your own";
  facts.groups = GroupFacts{};
  facts.sandbox = SandboxFacts{};
  facts.sandbox.error = "there is no state directory";
  facts.features.set(Feature::kCloneIntoCgroup, kNotTried);
  facts.features.set(Feature::kCgroupKill, kNotTried);
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_FALSE(diagnosis.ok);
  EXPECT_EQ(diagnosis.verdict,
            "Sandboxes do not work here. state_directory: the state directory '/state' belongs to "
            "another user. To change it: set CARREL_HOME to a directory of your own");
  EXPECT_FALSE(check_of(diagnosis, "memory").tried);
  EXPECT_FALSE(check_of(diagnosis, "cgroup_kill").tried);
}

TEST(Doctor, LittleSpaceIsAWarning) {
  DoctorFacts facts = healthy_facts();
  facts.state.free_bytes = 100ULL << 20;
  EXPECT_EQ(status_of(facts, "disk_space"), CheckStatus::kWarning);
  facts = healthy_facts();
  facts.state.free_files = 10;
  EXPECT_EQ(status_of(facts, "disk_space"), CheckStatus::kWarning);
}

TEST(Doctor, AKeeperThatDoesNotLetUsInIsAWarning) {
  DoctorFacts facts = healthy_facts();
  facts.state.keeper = KeeperState::kUnreachable;
  EXPECT_EQ(status_of(facts, "keeper"), CheckStatus::kWarning);
  facts.state.keeper = KeeperState::kRunning;
  EXPECT_EQ(check_of(diagnose(facts), "keeper").detail, "running");
}

TEST(Doctor, MissingProgramsAreNamedAndSandboxesStillWork) {
  DoctorFacts facts = healthy_facts();
  facts.has_bash = false;
  facts.has_python = false;
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_TRUE(diagnosis.ok);
  EXPECT_EQ(check_of(diagnosis, "bash").fix, "install bash");
  EXPECT_EQ(check_of(diagnosis, "python3").fix, "install python3");
}

TEST(DoctorWarnings, EachSettingWarnsAloneAndIsNoFailure) {
  struct Case {
    const char* name;
    void (*change)(DoctorFacts&);
    const char* fix;
  };
  const Case cases[] = {
      {"core_pattern", [](DoctorFacts& f) { f.settings.core_pattern = "|/bin/x"; },
       "kernel.core_pattern=core"},
      {"swap", [](DoctorFacts& f) { f.settings.swap_on = true; }, "swapoff"},
      {"userfaultfd", [](DoctorFacts& f) { f.settings.unprivileged_userfaultfd = 1; },
       "vm.unprivileged_userfaultfd=0"},
      {"io_uring", [](DoctorFacts& f) { f.settings.io_uring_disabled = 0; },
       "kernel.io_uring_disabled=2"},
      {"bpf", [](DoctorFacts& f) { f.settings.unprivileged_bpf_disabled = 0; },
       "kernel.unprivileged_bpf_disabled=2"},
      {"ptrace_scope", [](DoctorFacts& f) { f.settings.ptrace_scope = 0; },
       "kernel.yama.ptrace_scope=1"},
      {"protected_files", [](DoctorFacts& f) { f.settings.protected_fifos = 0; },
       "fs.protected_fifos=1"},
      {"ksm", [](DoctorFacts& f) { f.settings.ksm_run = 1; }, "ksm/run"},
      {"smt", [](DoctorFacts& f) { f.settings.smt_active = 1; }, "smt/control"},
      {"modules", [](DoctorFacts& f) { f.settings.risky_modules = {"sctp", "tipc"}; },
       "for m in sctp tipc; do echo install $m /bin/false"},
  };
  for (const Case& one : cases) {
    DoctorFacts facts = healthy_facts();
    one.change(facts);
    const Diagnosis diagnosis = diagnose(facts);
    EXPECT_TRUE(diagnosis.ok);
    EXPECT_EQ(check_of(diagnosis, one.name).status, CheckStatus::kWarning) << one.name;
    EXPECT_THAT(check_of(diagnosis, one.name).fix, HasSubstr(one.fix));
    EXPECT_EQ(diagnosis.verdict, std::string("Sandboxes work here, with everything in force. "
                                             "Worth a look: ") +
                                     one.name + ".");
  }
}

TEST(Doctor, WhoHoldsTheSizeOfAWorkspaceIsNamed) {
  DoctorFacts facts = healthy_facts();
  EXPECT_THAT(check_of(diagnose(facts), "disk").detail, HasSubstr("(loop)"));
  facts.disk = {true, false, "this host has no mke2fs", "install e2fsprogs"};
  const Diagnosis diagnosis = diagnose(facts);
  EXPECT_TRUE(diagnosis.ok) << "sandboxes do without";
  EXPECT_EQ(check_of(diagnosis, "disk").status, CheckStatus::kMissing);
  EXPECT_EQ(check_of(diagnosis, "disk").detail, "this host has no mke2fs; a watchdog stands in");
  EXPECT_EQ(check_of(diagnosis, "disk").fix, "install e2fsprogs");
  const Check user = check_of(diagnose(healthy_facts_of_user()), "disk");
  EXPECT_EQ(user.status, CheckStatus::kMissing);
  EXPECT_THAT(user.detail, HasSubstr("a watchdog stands in"));
  EXPECT_NE(user.fix, "");
}

TEST(Doctor, DelegationIsNamed) {
  EXPECT_EQ(check_of(diagnose(healthy_facts()), "delegation").status, CheckStatus::kOk);
  DoctorFacts facts = healthy_facts_of_user();
  facts.delegation.state = DelegationFacts::State::kScope;
  EXPECT_EQ(check_of(diagnose(facts), "delegation").status, CheckStatus::kOk);
  EXPECT_THAT(check_of(diagnose(facts), "delegation").detail, HasSubstr("yes: systemd gives"));
  facts = facts_without_groups();
  facts.around.systemd = true;
  const Check check = check_of(diagnose(facts), "delegation");
  EXPECT_EQ(check.status, CheckStatus::kMissing);
  EXPECT_EQ(check.detail, "no: there is no systemd of this user's");
  EXPECT_EQ(check.fix, "sudo loginctl enable-linger anna");
}

TEST(DoctorWarnings, SandboxesThatEndAtTheLogoutAreToldOf) {
  DoctorFacts facts = healthy_facts_of_user();
  facts.around.systemd = true;
  EXPECT_EQ(status_of(facts, "linger"), CheckStatus::kOk);
  facts.around.logind_kills = true;
  EXPECT_EQ(check_of(diagnose(facts), "linger").fix, "loginctl enable-linger anna");
  EXPECT_EQ(status_of(facts, "linger"), CheckStatus::kWarning);
  facts.around.lingers = true;
  EXPECT_EQ(status_of(facts, "linger"), CheckStatus::kOk);
  facts.around.lingers = false;
  facts.around.logind_kills = false;
  facts.around.in_user_manager = true;
  EXPECT_EQ(status_of(facts, "linger"), CheckStatus::kWarning);
  facts.around.uid = 0;
  EXPECT_EQ(status_of(facts, "linger"), CheckStatus::kOk);
}

}  // namespace
}  // namespace carrel::native
