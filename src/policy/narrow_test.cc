#include "policy/narrow.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "policy/settings.h"

namespace carrel::policy {
namespace {

TEST(Narrow, LowerLimitsAndTheInsideAreFine) {
  const Spec defaults = default_spec(Operation::kRun);
  Spec wanted = defaults;
  wanted.limits.memory_bytes /= 2;
  wanted.limits.cpu_millis /= 2;
  wanted.limits.pids /= 2;
  wanted.limits.timeout /= 2;
  wanted.hostname = "other";
  wanted.workdir = "/tmp";
  wanted.environment = {{"A", "1"}};
  wanted.required = {Protection::kMemory};
  EXPECT_TRUE(check_narrows(defaults, wanted, "carrel.toml").ok());
}

TEST(Narrow, EachWayToWidenIsRefusedByName) {
  const std::vector<std::pair<std::string, std::function<void(Spec&)>>> ways = {
      {"memory", [](Spec& spec) { spec.limits.memory_bytes += 1; }},
      {"cpus", [](Spec& spec) { spec.limits.cpu_millis += 1; }},
      {"pids", [](Spec& spec) { spec.limits.pids += 1; }},
      {"disk", [](Spec& spec) { spec.limits.disk_bytes += 1; }},
      {"tmp", [](Spec& spec) { spec.limits.tmp_bytes += 1; }},
      {"timeout", [](Spec& spec) { spec.limits.timeout += std::chrono::milliseconds(1); }},
      {"network", [](Spec& spec) { spec.network.mode = NetworkMode::kFull; }},
      {"network", [](Spec& spec) { spec.network.budgets.connections += 1; }},
      {"image", [](Spec& spec) { spec.image = "dir:/home"; }},
      {"cgroup_parent", [](Spec& spec) { spec.cgroup_parent = "x"; }},
      {"allowed_read_paths", [](Spec& spec) { spec.mount_grants.read_paths = {"/data"}; }},
      {"allowed_write_paths", [](Spec& spec) { spec.mount_grants.write_paths = {"/data"}; }},
      {"mount", [](Spec& spec) { spec.mounts = {{"/a", "/data", MountMode::kReadOnly}}; }},
  };
  for (const auto& [key, widen] : ways) {
    Spec wanted = default_spec(Operation::kRun);
    widen(wanted);
    Status status = check_narrows(default_spec(Operation::kRun), wanted, "carrel.toml");
    ASSERT_FALSE(status.ok()) << key;
    EXPECT_EQ(status.error().code, Code::kDenied);
    EXPECT_NE(status.error().message.find("'" + key + "'"), std::string::npos) << key;
  }
}

TEST(Narrow, ListsBelowThoseOfTheDefaultsAreFine) {
  Spec defaults = default_spec(Operation::kRun);
  defaults.mount_grants = {MountGrants::By::kLists, {"/data"}, {"/out"}};
  Spec wanted = defaults;
  wanted.mount_grants.read_paths = {"/data/x", "/out/y"};
  wanted.mount_grants.write_paths = {};
  EXPECT_TRUE(check_narrows(defaults, wanted, "carrel.toml").ok());
  wanted.mount_grants.write_paths = {"/data/x"};
  EXPECT_FALSE(check_narrows(defaults, wanted, "carrel.toml").ok());
  wanted.mount_grants = {MountGrants::By::kLists, {"/data2"}, {}};
  EXPECT_FALSE(check_narrows(defaults, wanted, "carrel.toml").ok());
}

TEST(Narrow, OtherWallsThanTheUsualOnesStay) {
  Spec defaults;
  Spec wanted;
  wanted.backend = Backend::kBubblewrap;
  EXPECT_TRUE(check_narrows(defaults, wanted, "carrel.toml").ok());
  std::swap(defaults, wanted);
  const Status status = check_narrows(defaults, wanted, "carrel.toml");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("'backend'"), std::string::npos);
}

TEST(Narrow, IdleSandboxesRestAsSoonAsTheOperatorSaysOrSooner) {
  Spec defaults;
  Spec wanted;
  wanted.on_idle = OnIdle::kPause;
  EXPECT_TRUE(check_request_narrows(defaults, wanted).ok());
  defaults.on_idle = OnIdle::kRemove;
  defaults.idle_timeout = std::chrono::seconds(60);
  wanted.idle_timeout = std::chrono::seconds(30);
  EXPECT_TRUE(check_request_narrows(defaults, wanted).ok());
  wanted.idle_timeout = std::chrono::seconds(61);
  EXPECT_EQ(check_request_narrows(defaults, wanted).error().code, Code::kDenied);
  wanted = defaults;
  wanted.on_idle = OnIdle::kNothing;
  EXPECT_EQ(check_request_narrows(defaults, wanted).error().code, Code::kDenied);
}

}  // namespace
}  // namespace carrel::policy
