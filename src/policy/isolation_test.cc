#include "policy/isolation.h"

#include <gtest/gtest.h>

#include <vector>

namespace carrel::policy {
namespace {

TEST(Isolation, TheFirstThatIsThereAndExactlySoStrongIsChosen) {
  const std::vector<Candidate> all = {{Backend::kNative, "", "no user namespaces"},
                                      {Backend::kBubblewrap},
                                      {Backend::kOci, "runc"},
                                      {Backend::kOci, "runsc"}};
  auto chosen = choose_walls(Strength::kNamespace, all);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen->backend, Backend::kBubblewrap);
  auto stronger = choose_walls(Strength::kGvisor, all);
  ASSERT_TRUE(stronger.ok());
  EXPECT_EQ(stronger->backend, Backend::kOci);
  EXPECT_EQ(stronger->runtime, "runsc");
}

TEST(Isolation, AStrongerOneIsTakenWhereNoneIsExactlySoStrong) {
  const std::vector<Candidate> all = {{Backend::kOci, "kata"}, {Backend::kNative}};
  EXPECT_EQ(choose_walls(Strength::kGvisor, all)->runtime, "kata");
  EXPECT_EQ(choose_walls(Strength::kNamespace, all)->backend, Backend::kNative);
}

TEST(Isolation, AWeakerOneIsNeverTakenAndWhatIsMissingIsTold) {
  const std::vector<Candidate> all = {{Backend::kNative},
                                      {Backend::kOci, "runsc", "runsc is not installed"},
                                      {Backend::kOci, "kata", "there is no KVM"}};
  auto chosen = choose_walls(Strength::kGvisor, all);
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, Code::kUnsupported);
  EXPECT_EQ(chosen.error().message,
            "no backend here is as strong as 'gvisor': oci with runsc: runsc is not installed; "
            "oci with kata: there is no KVM");
  EXPECT_EQ(choose_walls(Strength::kVm, {}).error().message,
            "no backend here is as strong as 'vm': this version has none");
}

TEST(Isolation, ANamedBackendThatIsWeakerIsRefused) {
  Spec spec;
  EXPECT_TRUE(check_strength(spec).ok());
  spec.isolation = Strength::kNamespace;
  EXPECT_TRUE(check_strength(spec).ok());
  spec.isolation = Strength::kGvisor;
  EXPECT_FALSE(check_strength(spec).ok());
  spec.backend = Backend::kOci;
  spec.runtime = "runsc";
  EXPECT_TRUE(check_strength(spec).ok());
}

TEST(Isolation, StrengthsHaveNames) {
  for (const Strength strength : {Strength::kNamespace, Strength::kGvisor, Strength::kVm}) {
    EXPECT_EQ(strength_named(name_of(strength)), strength);
  }
  EXPECT_EQ(strength_named("VM"), std::nullopt);
}

TEST(Isolation, ARuntimeMakesOnlyThoseStrongerThatHaveOne) {
  Spec spec;
  spec.runtime = "runsc";
  spec.isolation = Strength::kGvisor;
  for (const Backend backend : {Backend::kNative, Backend::kBubblewrap}) {
    spec.backend = backend;
    EXPECT_EQ(isolation_of(backend, "runsc").strength, Strength::kNamespace);
    EXPECT_EQ(check_strength(spec).error().code, Code::kInvalid);
  }
  spec.backend = Backend::kDocker;
  EXPECT_EQ(isolation_of(spec.backend, "runsc").strength, Strength::kGvisor);
}

// That an engine has a runtime of that name is its own word, and proves nothing.
TEST(Isolation, AMachineByTheWordOfAnEngineIsNoneThatWasAskedFor) {
  Spec spec;
  spec.backend = Backend::kDocker;
  for (const char* runtime : {"kata", "kata-qemu", "kata-runtime"}) {
    spec.runtime = runtime;
    EXPECT_TRUE(is_machine_by_engine(spec.backend, runtime));
    for (const Strength strength : {Strength::kGvisor, Strength::kVm}) {
      spec.isolation = strength;
      EXPECT_EQ(check_strength(spec).error().code, Code::kUnsupported) << runtime;
      const std::vector<Candidate> all = {{Backend::kDocker, runtime}};
      EXPECT_FALSE(choose_walls(strength, all).ok()) << runtime;
    }
    EXPECT_NE(isolation_of(spec.backend, runtime).note.find("unverified"), std::string_view::npos);
  }
  EXPECT_FALSE(is_machine_by_engine(Backend::kDocker, "runc"));
  EXPECT_FALSE(is_machine_by_engine(Backend::kOci, "kata"));
}

}  // namespace
}  // namespace carrel::policy
