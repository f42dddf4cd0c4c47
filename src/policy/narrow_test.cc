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
      {"image", [](Spec& spec) { spec.image = "dir:/home"; }},
      {"cgroup_parent", [](Spec& spec) { spec.cgroup_parent = "x"; }},
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

}  // namespace
}  // namespace carrel::policy
