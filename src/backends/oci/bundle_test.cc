#include "backends/oci/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backends/oci/porch.h"
#include "sandbox/plan_test_support.h"

namespace carrel::oci {
namespace {

using nlohmann::json;
using protocol::MountStep;
using protocol::StepKind;
using testing::Contains;
using testing::IsSupersetOf;
using Words = std::vector<std::string>;

using sandbox::everything_exists;
using sandbox::nothing_exists;
using sandbox::plan_of;
using sandbox::step;

Result<Bundle> translate(const std::vector<MountStep>& steps, Exists exists = everything_exists,
                         Words sources = {}, Dialect dialect = Dialect::kHosts) {
  const std::string plan = plan_of(steps);
  sandbox::RoomRequest request;
  request.hostname = "h";
  request.plan.own = plan;
  const Places places{"/stage", std::move(sources)};
  return bundle_for(request, places, exists, dialect);
}

json config_of(const std::vector<MountStep>& steps, Exists exists = everything_exists,
               Words sources = {}) {
  auto made = translate(steps, exists, std::move(sources));
  EXPECT_TRUE(made.ok());
  return made.ok() ? json::parse(made->config) : json();
}

json mount_at(const json& config, const std::string& path) {
  for (const json& mount : config["mounts"]) {
    if (mount["destination"] == path) {
      return mount;
    }
  }
  return {};
}

TEST(OciBundle, TheGuestBeginsWithWhatItLocksItselfInWith) {
  const json config = config_of({step(StepKind::kSealRoot, "")});
  const json process = config["process"];
  EXPECT_TRUE(process["noNewPrivileges"].get<bool>());
  for (const auto& [name, set] : process["capabilities"].items()) {
    EXPECT_TRUE(set.empty() || set == json::array({"CAP_SETFCAP"})) << name;
  }
  EXPECT_EQ(process["capabilities"].size(), 5U);
  EXPECT_TRUE(config["root"]["readonly"].get<bool>());
  Words kinds;
  for (const json& one : config["linux"]["namespaces"]) {
    EXPECT_FALSE(one.contains("path"));
    kinds.push_back(one["type"]);
  }
  EXPECT_THAT(kinds, testing::UnorderedElementsAre("user", "pid", "network", "ipc", "uts", "mount",
                                                   "cgroup"));
}

// CRITICAL: a namespace that runsc makes itself would have none of the rules.
TEST(OciBundle, BehindGvisorANetworkIsTheOneOfThePorch) {
  for (const char* rules : {"", "rules"}) {
    sandbox::RoomRequest request;
    request.captive.rules = rules;
    auto made = bundle_for(request, Places{"/stage", {}}, everything_exists, Dialect::kGvisors);
    ASSERT_TRUE(made.ok());
    Words kinds;
    const json config = json::parse(made->config);
    for (const json& one : config["linux"]["namespaces"]) {
      kinds.push_back(one["type"]);
    }
    const bool captive = *rules != '\0';
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), "network"), captive ? 0 : 1);
  }
}

TEST(OciBundle, WhatIsShownOfTheHostIsReadOnlyThroughout) {
  const json config = config_of({step(StepKind::kBind, "usr", "/usr", protocol::kStepReadOnly)});
  EXPECT_THAT(mount_at(config, "/usr")["options"].get<Words>(),
              IsSupersetOf({"rbind", "ro", "rro", "rnosuid", "rnodev"}));
}

TEST(OciBundle, TreesAreAsTheyWereAskedFor) {
  MountStep second = step(StepKind::kTree, "b");
  second.slot = 1;
  const json config = config_of({step(StepKind::kTree, "a", "", protocol::kStepReadOnly), second},
                                everything_exists, {"/one", "/two"});
  EXPECT_EQ(mount_at(config, "/a")["source"], "/one");
  EXPECT_THAT(mount_at(config, "/a")["options"].get<Words>(), Contains("rro"));
  EXPECT_EQ(mount_at(config, "/b")["source"], "/two");
  EXPECT_THAT(mount_at(config, "/b")["options"].get<Words>(), testing::Not(Contains("rro")));
}

TEST(OciBundle, WhatARuntimeDoesNotReplaceIsHidden) {
  auto made = translate({step(StepKind::kReplace, "proc/meminfo", "text"),
                         step(StepKind::kReplace, "proc/sys/kernel/random/boot_id", "id"),
                         step(StepKind::kMask, "proc/keys", "", protocol::kStepIsFile)});
  ASSERT_TRUE(made.ok());
  const json config = json::parse(made->config);
  EXPECT_EQ(made->data, Words({"text"}));
  EXPECT_EQ(mount_at(config, "/proc/meminfo")["source"], "/stage/bundle/data0");
  EXPECT_THAT(config["linux"]["maskedPaths"].get<Words>(),
              testing::ElementsAre("/proc/sys/kernel/random/boot_id", "/proc/keys"));
}

TEST(OciBundle, AWritableRootIsMadeOfOverlays) {
  const json config = config_of({step(StepKind::kOverlay, "usr/local", "/usr/local")});
  EXPECT_FALSE(config["root"]["readonly"].get<bool>());
  EXPECT_EQ(mount_at(config, "/usr/local")["source"], "/stage/overlay-usr+local");
  EXPECT_THAT(mount_at(config, "/usr/local")["options"].get<Words>(),
              IsSupersetOf({"bind", "nosuid", "nodev"}));
}

TEST(OciBundle, OptionalSourcesThatAreMissingAreLeftOut) {
  const json config = config_of(
      {step(StepKind::kBind, "etc/x", "/etc/x", protocol::kStepReadOnly | protocol::kStepOptional),
       step(StepKind::kBind, "usr", "/usr", protocol::kStepReadOnly)},
      nothing_exists);
  EXPECT_TRUE(mount_at(config, "/etc/x").is_null());
  EXPECT_FALSE(mount_at(config, "/usr").is_null());
}

TEST(OciBundle, WhatItCannotSayIsRefused) {
  EXPECT_EQ(translate({step(StepKind::kDevice, "x", "/dev/null")}).error().code,
            Code::kUnsupported);
  EXPECT_FALSE(translate({step(StepKind::kTree, "\xff")}, everything_exists, {"/a"}).ok());
  EXPECT_FALSE(translate({step(StepKind::kTree, "a")}, everything_exists, {"/\xff"}).ok());
}

TEST(OciBundle, BehindGvisorItsKernelMakesTheTmpfs) {
  MountStep whole = step(StepKind::kTmpfs, "");
  whole.size = 4096;
  MountStep made = step(StepKind::kSubdirectory, "", "shm");
  made.mode = 01777;
  auto bundle =
      translate({whole, made, step(StepKind::kAttach, "dev/shm", "shm", protocol::kStepNoExec),
                 step(StepKind::kBind, "usr", "/usr", protocol::kStepReadOnly),
                 step(StepKind::kMask, "proc/keys", "", protocol::kStepIsFile),
                 step(StepKind::kSealRoot, "")},
                everything_exists, {}, Dialect::kGvisors);
  ASSERT_TRUE(bundle.ok());
  const json config = json::parse(bundle->config);
  const json shm = mount_at(config, "/dev/shm");
  EXPECT_EQ(shm["type"], "tmpfs");
  EXPECT_THAT(shm["options"].get<Words>(), IsSupersetOf({"mode=1777", "size=4096", "noexec"}));
  EXPECT_THAT(mount_at(config, "/usr")["options"].get<Words>(), IsSupersetOf({"rbind", "ro"}));
  EXPECT_THAT(mount_at(config, "/sys")["options"].get<Words>(), Contains("ro"));
  EXPECT_EQ(config["process"]["args"],
            json::array({"/" + bundle->program, sandbox::kFurnishedByGvisor}));
  EXPECT_FALSE(config["linux"].contains("maskedPaths"));  // runsc would not look
}

TEST(OciBundle, BehindGvisorThereIsNoWritableRoot) {
  EXPECT_EQ(
      translate({step(StepKind::kOverlay, "usr", "/usr")}, everything_exists, {}, Dialect::kGvisors)
          .error()
          .code,
      Code::kUnsupported);
}

TEST(OciPorch, RequestsAreReadAsTheyWereWritten) {
  PorchRequest request;
  request.stage = "/mnt";
  request.config = "{}";
  request.data = {"", std::string("a\0b", 3)};
  request.shared = "s";
  request.own = std::string(100'000, 'o');
  request.runtime = {"/usr/sbin/runc", "run"};
  request.trees = {"folder", "file"};
  request.meant = {"", "/data"};
  request.program = "run/guest";
  request.cpus = "2";
  const std::string text = encode_porch(request);
  const auto read = decode_porch(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(encode_porch(read.value()), text);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{3}, text.size() / 2, text.size() - 1}) {
    EXPECT_FALSE(decode_porch(text.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(decode_porch(text + "x").ok());
}

}  // namespace
}  // namespace carrel::oci
