#include "policy/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "policy/settings.h"
#include "policy/spec_json.h"

namespace carrel::policy {
namespace {

using testing::HasSubstr;

constexpr HostFacts kHost{.memory_bytes = 4ULL << 30, .cpus = 2};

TEST(ValidateTest, TheDefaultsAreValid) { EXPECT_TRUE(validate(Spec{}, kHost).ok()); }

TEST(ValidateTest, EachImpossibleFieldIsNamed) {
  const struct {
    std::function<void(Spec&)> change;
    std::string_view message;
  } kTable[] = {
      {[](Spec& s) { s.limits.memory_bytes = 0; }, "memory '0': a sandbox needs at least 6m"},
      {[](Spec& s) { s.limits.memory_bytes = kLeastMemory - 1; }, "at least 6m"},
      {[](Spec& s) { s.limits.memory_bytes = (4ULL << 30) + 1; },
       "more than this host has (4096m)"},
      {[](Spec& s) { s.limits.cpu_millis = 9; }, "cpus '0.009': must be at least 0.01"},
      {[](Spec& s) { s.limits.cpu_millis = 2001; }, "more than this host has (2)"},
      {[](Spec& s) { s.limits.pids = 1; }, "pids '1': must be at least 2"},
      {[](Spec& s) { s.limits.pids = kMostPids + 1; }, "at most 4194304"},
      {[](Spec& s) { s.limits.disk_bytes = 1024; }, "disk '1k': must be at least 64k"},
      {[](Spec& s) { s.limits.tmp_bytes = 0; }, "tmp '0': must be at least 64k"},
      {[](Spec& s) { s.limits.timeout = std::chrono::milliseconds(0); }, "longer than zero"},
      {[](Spec& s) { s.limits.timeout = kLongestTimeout + std::chrono::milliseconds(1); },
       "30 days"},
      {[](Spec& s) { s.image = "ubuntu/"; }, "image 'ubuntu/'"},
      {[](Spec& s) { s.image = "dir:relative"; }, "absolute path"},
      {[](Spec& s) { s.workdir = "/a/../b"; }, "workdir"},
      {[](Spec& s) { s.user = "a:b"; }, "user"},
      {[](Spec& s) { s.hostname = "not-a-host-"; }, "hostname"},
      {[](Spec& s) { s.cgroup_parent = "../x"; }, "cgroup-parent"},
      {[](Spec& s) { s.environment = {{"A=B", "c"}}; }, "env 'A=B'"},
      {[](Spec& s) { s.environment = {{"", "c"}}; }, "env ''"},
      {[](Spec& s) { s.environment.assign(11, {"A", std::string(100'000, 'x')}); }, "1m together"},
  };
  for (const auto& row : kTable) {
    Spec spec;
    row.change(spec);
    const Status status = validate(spec, kHost);
    ASSERT_FALSE(status.ok()) << row.message;
    EXPECT_EQ(status.error().code, Code::kInvalid);
    EXPECT_THAT(status.error().to_string(), HasSubstr(std::string(row.message)));
  }
}

TEST(ValidateTest, AMountDoesNotCoverTheHomeFolder) {
  Spec spec;
  spec.user = "worker";
  for (const std::string target : {"/home/worker", "/home/worker/x", "/home/agent", "/homes"}) {
    spec.mounts = {{"/srv", target, MountMode::kReadOnly}};
    EXPECT_TRUE(validate(spec, kHost).ok()) << target;
  }
  spec.mounts = {{"/srv", "/home", MountMode::kReadOnly}};
  const Status status = validate(spec, kHost);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("/home/worker"));
}

TEST(ValidateTest, ExactlyWhatTheHostHasIsFine) {
  Spec spec;
  spec.limits.memory_bytes = kHost.memory_bytes;
  spec.limits.cpu_millis = kHost.cpus * 1000;
  EXPECT_TRUE(validate(spec, kHost).ok());
}

TEST(ValidateTest, TheLeastOfEverythingIsFine) {
  Spec spec;
  spec.limits = {.memory_bytes = kLeastMemory,
                 .cpu_millis = kLeastCpuMillis,
                 .pids = kFewestPids,
                 .disk_bytes = kLeastStorage,
                 .tmp_bytes = kLeastStorage,
                 .open_files = 4096,
                 .timeout = std::chrono::milliseconds(1)};
  EXPECT_TRUE(validate(spec, kHost).ok());
}

TEST(ValidateTest, SessionHasNoLimitButOneThatWasGiven) {
  for (const Operation operation : {Operation::kRun, Operation::kCreate}) {
    Spec spec = default_spec(operation);
    EXPECT_EQ(session_timeout(spec), kLongestTimeout);
    auto kept = spec_from_json(spec_to_json(spec, Values::kIncluded));
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(session_timeout(kept.value()), kLongestTimeout);
    // Also one that is what a command has anyway.
    const Given given{"--timeout", operation == Operation::kRun ? "60" : "300"};
    ASSERT_TRUE(find_setting("timeout")->set(spec, given).ok());
    EXPECT_EQ(session_timeout(spec), default_spec(operation).limits.timeout);
    kept = spec_from_json(spec_to_json(spec, Values::kIncluded));
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(session_timeout(kept.value()), default_spec(operation).limits.timeout);
  }
}

}  // namespace
}  // namespace carrel::policy
