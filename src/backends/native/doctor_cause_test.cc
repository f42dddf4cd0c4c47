#include "backends/native/doctor_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "backends/native/doctor_test_support.h"

namespace carrel::native {
namespace {

using testing::HasSubstr;
using testing_support::broken;
using testing_support::facts_without_groups;
using testing_support::healthy_facts;
using testing_support::healthy_facts_of_user;

Cause cause(DoctorFacts facts, Feature feature, int outcome) {
  return cause_of(feature, broken(std::move(facts), feature, outcome));
}

TEST(DoctorCause, DebiansSwitchForUserNamespacesIsNamed) {
  DoctorFacts facts = healthy_facts_of_user();
  facts.settings.unprivileged_userns_clone = 0;
  const Cause found = cause(facts, Feature::kUserNamespace, EPERM);
  EXPECT_THAT(found.why, HasSubstr("kernel.unprivileged_userns_clone is 0"));
  EXPECT_EQ(found.fix, "sudo sysctl -w kernel.unprivileged_userns_clone=1");
}

TEST(DoctorCause, DebiansSwitchDoesNotConcernRoot) {
  DoctorFacts facts = healthy_facts();
  facts.settings.unprivileged_userns_clone = 0;
  EXPECT_THAT(cause(facts, Feature::kUserNamespace, EPERM).why,
              testing::Not(HasSubstr("unprivileged_userns_clone")));
}

TEST(DoctorCause, AZeroOfMaxUserNamespacesIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.settings.max_user_namespaces = 0;
  const Cause found = cause(facts, Feature::kUserNamespace, ENOSPC);
  EXPECT_EQ(found.why, "user.max_user_namespaces is 0");
  EXPECT_EQ(found.fix, "sysctl -w user.max_user_namespaces=16384");
}

TEST(DoctorCause, EveryKindOfNamespaceHasItsOwnLimit) {
  const std::pair<Feature, const char*> limits[] = {
      {Feature::kUserNamespace, "user.max_user_namespaces"},
      {Feature::kMountNamespace, "user.max_mnt_namespaces"},
      {Feature::kPidNamespace, "user.max_pid_namespaces"},
      {Feature::kNetworkNamespace, "user.max_net_namespaces"},
      {Feature::kIpcNamespace, "user.max_ipc_namespaces"},
      {Feature::kUtsNamespace, "user.max_uts_namespaces"},
      {Feature::kCgroupNamespace, "user.max_cgroup_namespaces"},
      {Feature::kInnerNamespace, "user.max_user_namespaces"}};
  for (const auto& [feature, name] : limits) {
    EXPECT_THAT(cause(healthy_facts_of_user(), feature, ENOSPC).fix,
                HasSubstr(std::string("sysctl -w ") + name + "="));
  }
}

TEST(DoctorCause, AReachedLimitIsRaisedAboveWhatItIs) {
  DoctorFacts facts = healthy_facts();
  facts.settings.max_net_namespaces = 60000;
  const Cause found = cause(facts, Feature::kNetworkNamespace, ENOSPC);
  EXPECT_EQ(found.why, "the limit user.max_net_namespaces is reached");
  EXPECT_EQ(found.fix, "sysctl -w user.max_net_namespaces=120000");
}

TEST(DoctorCause, UbuntusAppArmorSwitchIsNamedWhereverItShowsFirst) {
  DoctorFacts facts = healthy_facts_of_user();
  facts.settings.apparmor_restrict_userns = 1;
  for (Feature feature : {Feature::kUserNamespace, Feature::kIdMap, Feature::kMountNamespace,
                          Feature::kLoopback, Feature::kMountApi, Feature::kTmpfs}) {
    for (int outcome : {EPERM, EACCES}) {
      EXPECT_EQ(cause(facts, feature, outcome).fix,
                "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    }
  }
}

TEST(DoctorCause, AnOuterFilterThatRefusesIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.under_seccomp = true;
  facts.around.container = Container::kDocker;
  const Cause found = cause(facts, Feature::kUserNamespace, EPERM);
  EXPECT_THAT(found.why, HasSubstr("system call filter"));
  EXPECT_EQ(found.fix, "start the container with --security-opt seccomp=unconfined");
}

TEST(DoctorCause, AnOuterFilterThatHidesACallIsNotAnOldKernel) {
  DoctorFacts facts = healthy_facts();
  facts.around.under_seccomp = true;
  EXPECT_THAT(cause(facts, Feature::kClone3, ENOSYS).why, HasSubstr("filter that hides it"));
  facts.around.under_seccomp = false;
  const Cause old = cause(facts, Feature::kClone3, ENOSYS);
  EXPECT_THAT(old.why, HasSubstr("6.1.0"));
  EXPECT_EQ(old.fix, "use Linux 5.5 or newer");
}

TEST(DoctorCause, AnOuterFilterThatKillsIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.container = Container::kKubernetes;
  const Cause found = cause(facts, Feature::kLandlock, kDiedTrying);
  EXPECT_THAT(found.why, HasSubstr("was killed"));
  EXPECT_THAT(found.fix, HasSubstr("seccompProfile"));
}

TEST(DoctorCause, AMaskedProcIsExplained) {
  DoctorFacts facts = healthy_facts();
  facts.around.proc_covers = {"/proc/kcore", "/proc/keys", "/proc/acpi", "/proc/scsi"};
  facts.around.container = Container::kDocker;
  const Cause docker = cause(facts, Feature::kProc, EPERM);
  EXPECT_THAT(docker.why, HasSubstr("/proc/kcore, /proc/keys, /proc/acpi and 1 more"));
  EXPECT_THAT(docker.why, HasSubstr("Mount too revealing"));
  EXPECT_EQ(docker.fix, "start the container with --security-opt systempaths=unconfined");
  facts.around.container = Container::kPodman;
  EXPECT_THAT(cause(facts, Feature::kProc, EPERM).fix, HasSubstr("unmask=ALL"));
  facts.around.container = Container::kKubernetes;
  EXPECT_THAT(cause(facts, Feature::kProc, EPERM).fix, HasSubstr("procMount: Unmasked"));
}

TEST(DoctorCause, AMissingProcIsExplained) {
  DoctorFacts facts = healthy_facts();
  facts.around.proc_mounted = false;
  EXPECT_EQ(cause(facts, Feature::kProc, EPERM).fix, "mount proc at /proc before carrel starts");
}

TEST(DoctorCause, RootWithoutSetfcapIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.bounding_capabilities = ~(1ULL << 31);
  const Cause found = cause(facts, Feature::kIdMap, EPERM);
  EXPECT_THAT(found.why, HasSubstr("CAP_SETFCAP"));
  EXPECT_THAT(found.fix, HasSubstr("CAP_SETFCAP"));
  facts.around.container = Container::kDocker;
  EXPECT_EQ(cause(facts, Feature::kIdMap, EPERM).fix, "start the container with --cap-add SETFCAP");
}

TEST(DoctorCause, RootWithoutSetuidIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.capabilities = ~(1ULL << 7);
  EXPECT_THAT(cause(facts, Feature::kIdMap, EPERM).why, HasSubstr("CAP_SETUID"));
}

TEST(DoctorCause, RootOfANamespaceWithoutTheSandboxesIdsIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.has_sandbox_ids = false;
  EXPECT_THAT(cause(facts, Feature::kIdMap, EPERM).why, HasSubstr("root of a user namespace"));
}

TEST(DoctorCause, AProgramThatItsUserCannotReadIsNamed) {
  DoctorFacts facts = healthy_facts_of_user();
  facts.around.dumpable = false;
  EXPECT_EQ(cause(facts, Feature::kIdMap, EACCES).fix, "chmod a+r the carrel program");
}

TEST(DoctorCause, AnInitialRamfsIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.root_is_ramfs = true;
  const Cause found = cause(facts, Feature::kPivotRoot, EINVAL);
  EXPECT_THAT(found.why, HasSubstr("initial ramfs"));
  EXPECT_THAT(found.fix, HasSubstr("switch_root"));
}

TEST(DoctorCause, AChrootIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.in_chroot = true;
  for (auto [feature, outcome] :
       {std::pair{Feature::kUserNamespace, EPERM}, std::pair{Feature::kPivotRoot, EINVAL}}) {
    EXPECT_EQ(cause(facts, feature, outcome).fix, "start carrel outside of the chroot");
  }
}

TEST(DoctorCause, ForbiddenMemoryFilesAreNamed) {
  DoctorFacts facts = healthy_facts();
  facts.settings.memfd_noexec = 2;
  EXPECT_EQ(cause(facts, Feature::kMemfdExec, EACCES).fix, "sysctl -w vm.memfd_noexec=1");
}

TEST(DoctorCause, LandlockThatIsOffAtBootIsToldFromOneThatIsNotBuilt) {
  EXPECT_THAT(cause(healthy_facts(), Feature::kLandlock, EOPNOTSUPP).fix, HasSubstr("lsm="));
  EXPECT_THAT(cause(healthy_facts(), Feature::kLandlock, ENOSYS).fix,
              HasSubstr("CONFIG_SECURITY_LANDLOCK"));
}

TEST(DoctorCause, AnOverlayModuleCanBeLoaded) {
  EXPECT_EQ(cause(healthy_facts(), Feature::kOverlay, ENODEV).fix, "sudo modprobe overlay");
}

TEST(DoctorCause, AnAppArmorProfileIsNamed) {
  DoctorFacts facts = healthy_facts();
  facts.around.apparmor_profile = "docker-default (enforce)";
  facts.around.container = Container::kDocker;
  const Cause found = cause(facts, Feature::kMountApi, EACCES);
  EXPECT_THAT(found.why, HasSubstr("docker-default"));
  EXPECT_THAT(found.fix, HasSubstr("apparmor=unconfined"));
}

TEST(DoctorCause, AKernelSettingIsChangedOutsideOfAContainer) {
  DoctorFacts facts = healthy_facts();
  facts.settings.max_user_namespaces = 0;
  facts.around.container = Container::kPodman;
  EXPECT_THAT(cause(facts, Feature::kUserNamespace, ENOSPC).fix,
              HasSubstr("on the container's host: sudo sysctl"));
}

TEST(DoctorCause, AnUnknownRefusalPointsToTheKernelsLog) {
  for (int outcome : {EPERM, EIO}) {
    EXPECT_THAT(cause(healthy_facts(), Feature::kTmpfs, outcome).fix, HasSubstr("dmesg"));
  }
}

TEST(DoctorLimitCause, AUserWithoutAServiceManagerLingers) {
  DoctorFacts facts = facts_without_groups();
  facts.around.systemd = true;
  const Cause found = cause_of(Limit::kMemory, facts);
  EXPECT_EQ(found.why, "'/groups': Permission denied");
  EXPECT_EQ(found.fix, "sudo loginctl enable-linger anna");
}

TEST(DoctorLimitCause, AControllerThatIsNotPassedDownIsDelegated) {
  DoctorFacts facts = facts_without_groups();
  facts.around.systemd = true;
  facts.groups.has_v2 = true;
  facts.delegation.state = DelegationFacts::State::kScope;
  EXPECT_THAT(cause_of(Limit::kCpu, facts).fix, HasSubstr("user@1000.service"));
  EXPECT_THAT(cause_of(Limit::kCpu, facts).fix, HasSubstr("Delegate=cpu memory pids"));
}

TEST(DoctorLimitCause, AControllerOnV1IsMovedToV2) {
  DoctorFacts facts = facts_without_groups();
  facts.around.systemd = true;
  facts.groups.memory.on_v1 = true;
  EXPECT_THAT(cause_of(Limit::kMemory, facts).fix, HasSubstr("unified_cgroup_hierarchy=1"));
}

TEST(DoctorLimitCause, WithoutSystemdRootGivesAGroup) {
  EXPECT_THAT(cause_of(Limit::kPids, facts_without_groups()).fix, HasSubstr("--cgroup-parent"));
}

TEST(DoctorLimitCause, AControllerThatIsOffInTheKernelIsSwitchedOnAtBoot) {
  DoctorFacts facts = facts_without_groups();
  facts.groups.memory.disabled_in_kernel = true;
  EXPECT_THAT(cause_of(Limit::kMemory, facts).fix, HasSubstr("cgroup_enable=memory"));
}

TEST(DoctorLimitCause, RootInAContainerNeedsWritableGroups) {
  DoctorFacts facts = facts_without_groups();
  facts.around.uid = 0;
  facts.around.container = Container::kDocker;
  EXPECT_THAT(cause_of(Limit::kMemory, facts).fix, HasSubstr("writable /sys/fs/cgroup"));
}

TEST(DoctorLimitCause, ALimitThatWasSetAndNotHeldIsNotCalledMissing) {
  DoctorFacts facts = healthy_facts();
  facts.groups.cpu.held = false;
  EXPECT_THAT(cause_of(Limit::kCpu, facts).why, HasSubstr("did not hold it"));
}

}  // namespace
}  // namespace carrel::native
