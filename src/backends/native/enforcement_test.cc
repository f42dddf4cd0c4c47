#include "backends/native/enforcement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace carrel::native {
namespace {

using kernel::CgroupSource;
using policy::Protection;
using testing::HasSubstr;

// A host that gives everything.
EnforcementFacts everything() {
  EnforcementFacts facts;
  facts.cgroup = {CgroupSource::kCgroupV2, CgroupSource::kCgroupV2, CgroupSource::kCgroupV2, true};
  facts.landlock_abi = 7;
  facts.root = true;
  return facts;
}

// A host that gives an ordinary user no control group and has no Landlock.
EnforcementFacts nothing() {
  EnforcementFacts facts;
  facts.why_no_memory = "the memory controller is not delegated";
  facts.why_no_cpu = "the cpu controller is not delegated";
  facts.why_no_pids = "the pids controller is not delegated";
  return facts;
}

std::string by(const Enforcement& enforcement, const char* name) {
  const Enforcement::Row* row = enforcement.find(name);
  return row == nullptr ? "(no row)" : row->by;
}

std::string note(const Enforcement& enforcement, const char* name) {
  const Enforcement::Row* row = enforcement.find(name);
  return row == nullptr ? "(no row)" : row->note;
}

TEST(Enforcement, EachMountHasARowThatTellsWhatIsSpecial) {
  EnforcementFacts facts = everything();
  const auto mode = policy::MountMode::kReadWrite;
  facts.trees = {{"/in", policy::MountMode::kReadOnly, Ownership::kMapped, {0, 0}, ""},
                 {"/out", mode, Ownership::kMapped, {1001, 1001}, "hidden in it: .env"},
                 {"/roots", mode, Ownership::kMapped, {0, 0}, "hidden in it: .env"},
                 {"/old", policy::MountMode::kReadOnly, Ownership::kUnmapped, {1, 1}, ""}};
  const Enforcement enforcement = describe({}, facts);
  EXPECT_EQ(by(enforcement, "mount /in"), "read-only");
  EXPECT_EQ(note(enforcement, "mount /in"), "");
  EXPECT_EQ(by(enforcement, "mount /out"), "read-write");
  EXPECT_EQ(note(enforcement, "mount /out"), "hidden in it: .env");
  EXPECT_THAT(note(enforcement, "mount /roots"), HasSubstr("root's"));
  EXPECT_THAT(note(enforcement, "mount /roots"), HasSubstr("; hidden in it: .env"));
  EXPECT_THAT(note(enforcement, "mount /old"), HasSubstr("idmapped"));
}

TEST(Enforcement, EveryProtectionHasOneRow) {
  for (const EnforcementFacts& facts : {everything(), nothing()}) {
    const Enforcement enforcement = describe({}, facts);
    std::set<std::string> names;
    for (const Enforcement::Row& row : enforcement.rows) {
      EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
      EXPECT_FALSE(row.by.empty()) << row.name;
    }
    for (const char* name :
         {"isolation", "namespaces", "user", "capabilities", "no_new_privileges", "seccomp",
          "landlock", "root", "network", "memory", "cpu", "pids", "disk", "tmp"}) {
      EXPECT_TRUE(names.contains(name)) << name;
    }
  }
}

TEST(Enforcement, AMachineBySomebodysWordIsCalledUnverified) {
  policy::Spec spec;
  spec.backend = policy::Backend::kDocker;
  spec.runtime = "kata";
  EnforcementFacts facts = nothing();
  facts.kernel = EnforcementFacts::Kernel::kMachines;
  facts.builder = "docker 20 with kata";
  facts.builder_warning = "unverified: nobody tried";
  facts.seen = sandbox::SeenKernel{sandbox::SeenKernel::Whose::kAnothers, 0};
  const Enforcement another = describe(spec, facts);
  EXPECT_EQ(by(another, "isolation"), "unverified");
  EXPECT_EQ(by(another, kVerified), "no");
  EXPECT_EQ(note(another, kVerified), "unverified: nobody tried");
  EXPECT_EQ(by(another, "landlock"), "none");
  EXPECT_EQ(by(another, "memory"), "watchdog");
  EXPECT_EQ(by(another, "cpu"), "affinity");
  EXPECT_EQ(by(another, "acceleration"), "(no row)");
  // The kernel is the host's: whatever it is called, it is no machine.
  facts.seen->whose = sandbox::SeenKernel::Whose::kHosts;
  const Enforcement hosts = describe(spec, facts);
  EXPECT_EQ(by(hosts, "isolation"), "namespace");
  EXPECT_THAT(note(hosts, "isolation"), HasSubstr("made no virtual machine"));
  EXPECT_THAT(note(hosts, kVerified), HasSubstr("its kernel is the host's"));
  spec.required = {Protection::kMemory};
  EXPECT_FALSE(check_required(spec, facts).ok());
  spec.required = {Protection::kLandlock};
  EXPECT_FALSE(check_required(spec, facts).ok());
}

TEST(Enforcement, UnknownNameHasNoRow) { EXPECT_EQ(describe({}, {}).find("magic"), nullptr); }

TEST(Enforcement, ControlGroupsAreNamedByTheirVersion) {
  EnforcementFacts facts = everything();
  facts.cgroup.cpu = CgroupSource::kCgroupV1;
  const Enforcement enforcement = describe({}, facts);
  EXPECT_EQ(by(enforcement, "memory"), "cgroup v2");
  EXPECT_EQ(by(enforcement, "cpu"), "cgroup v1");
  EXPECT_EQ(by(enforcement, "pids"), "cgroup v2");
  for (const char* name : {"memory", "cpu", "pids"}) {
    EXPECT_EQ(note(enforcement, name), "") << name;
  }
}

TEST(Enforcement, SubstitutesAreNamedWithTheReason) {
  const Enforcement enforcement = describe({}, nothing());
  EXPECT_EQ(by(enforcement, "memory"), "watchdog");
  EXPECT_EQ(by(enforcement, "cpu"), "affinity");
  EXPECT_EQ(by(enforcement, "pids"), "rlimit");
  EXPECT_EQ(by(enforcement, "landlock"), "none");
  EXPECT_THAT(note(enforcement, "memory"), HasSubstr("memory controller"));
  EXPECT_THAT(note(enforcement, "cpu"), HasSubstr("cpu controller"));
  EXPECT_THAT(note(enforcement, "pids"), HasSubstr("pids controller"));
  EXPECT_THAT(note(enforcement, "landlock"), HasSubstr("no Landlock"));
}

TEST(Enforcement, AWorkspacesOwnFileSystemHoldsItsSizeUnlessLessIsAskedFor) {
  policy::Spec spec;
  spec.workspace = "w";
  spec.required = {policy::Protection::kDisk};
  EnforcementFacts facts = everything();
  EXPECT_EQ(by(describe(spec, facts), "disk"), "watchdog");
  EXPECT_EQ(check_required(spec, facts).error().code, Code::kUnsupported);
  facts.own_disk_bytes = spec.limits.disk_bytes;
  EXPECT_EQ(by(describe(spec, facts), "disk"), "loop");
  EXPECT_EQ(note(describe(spec, facts), "disk"), "");
  EXPECT_TRUE(check_required(spec, facts).ok());
  spec.limits.disk_bytes += 1;
  EXPECT_EQ(by(describe(spec, facts), "disk"), "loop");
  EXPECT_THAT(note(describe(spec, facts), "disk"), HasSubstr("smaller"));
  spec.limits.disk_bytes -= 2;
  EXPECT_EQ(by(describe(spec, facts), "disk"), "watchdog");
  EXPECT_EQ(check_required(spec, facts).error().code, Code::kUnsupported);
}

TEST(Enforcement, SwapThatIsNotCountedIsSaid) {
  EnforcementFacts facts = everything();
  facts.cgroup.swap_accounted = false;
  EXPECT_THAT(note(describe({}, facts), "memory"), HasSubstr("swap"));
}

TEST(Enforcement, LandlockIsNamedByItsVersion) {
  EXPECT_EQ(by(describe({}, everything()), "landlock"), "abi 7");
}

TEST(Enforcement, OrdinaryUserKeepsItsGroupsAndIsTold) {
  EXPECT_EQ(note(describe({}, everything()), "user"), "");
  EXPECT_THAT(note(describe({}, nothing()), "user"), HasSubstr("supplementary groups"));
}

TEST(Enforcement, WritableRootIsNotCalledReadOnly) {
  policy::Spec spec;
  EXPECT_EQ(by(describe(spec, everything()), "root"), "read-only");
  spec.root_mode = policy::RootMode::kThrowawayOverlay;
  EXPECT_EQ(by(describe(spec, everything()), "root"), "throw-away overlay");
}

TEST(Describe, LogoutIsToldOfALongLivedOneOnly) {
  EnforcementFacts facts = everything();
  EXPECT_EQ(describe({}, facts).find("logout"), nullptr);
  facts.logout = LogoutFacts{};
  const Enforcement alone = describe({}, facts);
  ASSERT_NE(alone.find("logout"), nullptr);
  EXPECT_EQ(alone.find("logout")->by, "leaves it alone");
  EXPECT_EQ(alone.find("logout")->note, "");
  facts.logout = LogoutFacts{Logout::kEnds, "loginctl enable-linger anna"};
  const Enforcement ends = describe({}, facts);
  ASSERT_NE(ends.find("logout"), nullptr);
  EXPECT_EQ(ends.find("logout")->by, "ends it");
  EXPECT_THAT(ends.find("logout")->note, HasSubstr("loginctl enable-linger anna"));
}

TEST(Required, EverythingIsGivenWhereTheHostHasIt) {
  policy::Spec spec;
  spec.required = {Protection::kMemory, Protection::kCpu, Protection::kPids, Protection::kDisk,
                   Protection::kLandlock};
  EXPECT_TRUE(check_required(spec, everything()).ok());
}

TEST(Required, NothingIsRefusedThatWasNotRequired) {
  EXPECT_TRUE(check_required({}, nothing()).ok());
}

TEST(Required, MissingProtectionIsUnsupportedAndNamed) {
  const std::vector<std::pair<Protection, std::string>> protections = {
      {Protection::kMemory, "memory"},
      {Protection::kCpu, "cpu"},
      {Protection::kLandlock, "landlock"},
  };
  for (const auto& [protection, name] : protections) {
    policy::Spec spec;
    spec.required = {protection};
    const Status status = check_required(spec, nothing());
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code, Code::kUnsupported) << name;
    EXPECT_THAT(status.error().message, HasSubstr("'" + name + "'"));
    EXPECT_THAT(status.error().hint, HasSubstr("doctor")) << name;
    EXPECT_TRUE(check_required(spec, everything()).ok()) << name;
  }
}

TEST(Required, ReasonIsInTheSentence) {
  policy::Spec spec;
  spec.required = {Protection::kCpu};
  EXPECT_EQ(check_required(spec, nothing()).error().message,
            "'cpu' is required and cannot be enforced here: the cpu controller is not delegated");
}

TEST(Required, OneThatIsGivenDoesNotHideOneThatIsMissing) {
  policy::Spec spec;
  spec.required = {Protection::kDisk, Protection::kPids, Protection::kMemory};
  EnforcementFacts facts = everything();
  facts.cgroup.memory = CgroupSource::kNone;
  facts.why_no_memory = "no such controller";
  const Status status = check_required(spec, facts);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("'memory'"));
}

TEST(Describe, ClocksAreWhatTheGuestSays) {
  Enforcement own;
  add_clocks(protocol::Clocks::kOwn, own);
  ASSERT_NE(own.find("clocks"), nullptr);
  EXPECT_EQ(own.find("clocks")->by, "time namespace");
  Enforcement hosts;
  add_clocks(static_cast<protocol::Clocks>(7), hosts);  // what a guest says is not trusted
  EXPECT_EQ(hosts.find("clocks")->by, "none");
  EXPECT_FALSE(hosts.find("clocks")->note.empty());
}

TEST(Enforcement, ANetworkIsToldWithItsPolicy) {
  policy::Spec spec;
  const auto row = [&] {
    for (const Enforcement::Row& one : describe(spec, everything()).rows) {
      if (one.name == "network") {
        return one.by + ": " + one.note;
      }
    }
    return std::string();
  };
  EXPECT_EQ(row(), "none: ");
  spec.network.mode = policy::NetworkMode::kFull;
  EXPECT_EQ(row(), "egress process: full");
}

}  // namespace
}  // namespace carrel::native
