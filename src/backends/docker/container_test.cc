#include "backends/docker/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backends/docker/comparison.h"
#include "sandbox/plan_test_support.h"

namespace carrel::docker {
namespace {

using nlohmann::json;
using protocol::MountStep;
using protocol::StepKind;
using testing::HasSubstr;

using sandbox::everything_exists;
using sandbox::nothing_exists;
using sandbox::plan_of;
using sandbox::step;

ContainerTerms usual_terms() {
  ContainerTerms terms;
  terms.image = "room:here";
  terms.runtime = "runc";
  terms.program = "/run/guest";
  terms.door = "/run/door";
  terms.user = terms.group = 1234;
  terms.cpus = 2;
  return terms;
}

Result<json> translate(const std::vector<MountStep>& steps, Exists exists = everything_exists,
                       const std::vector<std::string>& security = {},
                       ContainerTerms terms = usual_terms()) {
  const std::string plan = plan_of(steps);
  sandbox::RoomRequest request;
  request.id = "box";
  request.installation = "here";
  request.plan.own = plan;
  terms.security = security;
  return container_for(request, terms, exists);
}

json asked(const std::vector<MountStep>& steps = {}) {
  auto made = translate(steps);
  EXPECT_TRUE(made.ok());
  return made.ok() ? made.value() : json();
}

// What an honest engine tells of it.
json told(const json& asked) {
  json found = {{"HostConfig", asked["HostConfig"]}, {"Config", asked}, {"Mounts", json::array()}};
  for (const json& mount : asked["HostConfig"]["Mounts"]) {
    found["Mounts"].push_back({{"Type", "bind"},
                               {"Source", mount["Source"]},
                               {"Destination", mount["Target"]},
                               {"RW", !mount["ReadOnly"].get<bool>()}});
  }
  return found;
}

json mount_at(const json& container, const std::string& path) {
  for (const json& mount : container["HostConfig"]["Mounts"]) {
    if (mount["Target"] == path) {
      return mount;
    }
  }
  return {};
}

TEST(DockerContainer, OfARootlessEngineIsItsOwnersRootWithOneCapability) {
  ContainerTerms terms = usual_terms();
  terms.ids = Ids::kOwnersRoot;
  terms.user = terms.group = 0;
  const auto container = translate({}, everything_exists, {"name=rootless"}, terms);
  ASSERT_TRUE(container.ok());
  EXPECT_EQ(container.value()["User"], "0:0");
  EXPECT_EQ(container.value()["Cmd"], json::array({"contained-by-owner"}));
  EXPECT_EQ(container.value()["HostConfig"]["CapAdd"], json::array({"SETFCAP"}));
  EXPECT_EQ(container.value()["HostConfig"]["CapDrop"], json::array({"ALL"}));
}

TEST(DockerContainer, IsAskedForNoLimitThatItsEngineCannotHold) {
  ContainerTerms terms = usual_terms();
  terms.limits = {.memory = false, .cpu = true, .pids = false};
  const auto container = translate({}, everything_exists, {}, terms);
  ASSERT_TRUE(container.ok());
  const json& host = container.value()["HostConfig"];
  EXPECT_EQ(host["Memory"], 0);
  EXPECT_EQ(host["MemorySwap"], 0);
  EXPECT_EQ(host["PidsLimit"], 0);
  EXPECT_GT(host["NanoCpus"], 0);
  EXPECT_GT(asked()["HostConfig"]["Memory"], 0);
  EXPECT_GT(asked()["HostConfig"]["PidsLimit"], 0);
}

// What the kernel lets an engine of somebody's use is often less than the host has.
TEST(DockerEngine, ARootlessOneHoldsWhatItSaysItHasOfVersionTwo) {
  Facts facts;
  facts.holds = {.memory = true, .cpu = false, .pids = true};
  EXPECT_TRUE(facts.limits().cpu) << "one of root's refuses what it cannot hold";
  facts.security = {"name=seccomp,profile=default", "name=rootless"};
  facts.groups = "2";
  EXPECT_TRUE(facts.limits().memory);
  EXPECT_FALSE(facts.limits().cpu);
  facts.groups = "1";
  EXPECT_FALSE(facts.limits().memory);
  EXPECT_FALSE(facts.limits().pids);
}

TEST(DockerContainer, HasNoPrivilegeAndNoNetwork) {
  const json container = asked();
  const json& host = container["HostConfig"];
  EXPECT_EQ(container["User"], "1234:1234");
  EXPECT_EQ(host["CapDrop"], json::array({"ALL"}));
  EXPECT_EQ(host["NetworkMode"], "none");
  EXPECT_TRUE(host["ReadonlyRootfs"].get<bool>());
  EXPECT_TRUE(host["AutoRemove"].get<bool>());
  EXPECT_EQ(host["SecurityOpt"], json::array({"no-new-privileges", "seccomp=unconfined"}));
  EXPECT_EQ(container["Labels"]["carrel.installation"], "here");
}

TEST(DockerContainer, ShowsOfTheHostWhatThePlanNames) {
  MountStep tree = step(StepKind::kTree, "data", "/srv/data");
  const json container =
      asked({step(StepKind::kBind, "usr", "/usr", protocol::kStepReadOnly), tree,
             step(StepKind::kTree, "seen", "/srv/seen", protocol::kStepReadOnly)});
  EXPECT_EQ(mount_at(container, "/usr")["Source"], "/usr");
  EXPECT_TRUE(mount_at(container, "/usr")["ReadOnly"].get<bool>());
  EXPECT_FALSE(mount_at(container, "/srv/data")["ReadOnly"].get<bool>());
  EXPECT_TRUE(mount_at(container, "/srv/seen")["ReadOnly"].get<bool>());
  EXPECT_EQ(container["HostConfig"]["Mounts"].size(), 5U);
}

TEST(DockerContainer, LeavesOutWhatIsMissingAndOptional) {
  const auto flags = protocol::kStepReadOnly | protocol::kStepOptional;
  const auto made = translate({step(StepKind::kBind, "etc/x", "/etc/x", flags)}, nothing_exists);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(mount_at(made.value(), "/etc/x").is_null());
}

TEST(DockerContainer, PathsOfItsOwnAreRefused) {
  for (const char* path : {"/proc/1", "/sys", "/dev/kvm", "/carrel/door", "/", "/\xff"}) {
    EXPECT_EQ(translate({step(StepKind::kBind, "x", path)}).error().code, Code::kUnsupported)
        << path;
  }
}

TEST(DockerContainer, LabelsThatForbidMountsAreSwitchedOffWhereThereAreAny) {
  const auto made = translate({}, everything_exists, {"name=apparmor", "name=selinux"});
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(made.value()["HostConfig"]["SecurityOpt"].dump(),
              testing::AllOf(HasSubstr("apparmor=unconfined"), HasSubstr("label=disable")));
}

TEST(DockerContainer, WhatAnHonestEngineTellsIsTheSame) {
  const json container = asked({step(StepKind::kBind, "usr", "/usr")});
  json found = told(container);
  EXPECT_TRUE(compare(container, found).ok());
  found["HostConfig"]["CapAdd"] = nullptr;
  found["HostConfig"]["Binds"] = nullptr;
  found["HostConfig"]["ShmSize"] = 67108864;
  found["Config"]["Labels"]["other"] = "x";
  EXPECT_TRUE(compare(container, found).ok());
}

TEST(DockerContainer, WhatPodmanTellsIsTranslatedAndNoMore) {
  const json container = asked({step(StepKind::kBind, "usr", "/usr")});
  json found = told(container);
  found["HostConfig"]["CapDrop"] = {"CHOWN", "KILL"};
  found["HostConfig"]["IpcMode"] = "shareable";
  found["HostConfig"]["PidMode"] = "private";
  found["HostConfig"]["UTSMode"] = "private";
  found["HostConfig"]["CgroupnsMode"] = "";
  found["HostConfig"]["Runtime"] = "oci";
  found["HostConfig"]["Mounts"] = nullptr;
  found["HostConfig"]["Binds"] = {"/usr:/usr:ro,rprivate,rbind"};
  found["HostConfig"]["Tmpfs"] = {{"/run", "rw"}, {"/tmp", "rw"}, {"/var/tmp", "rw"}};
  EXPECT_FALSE(compare(container, found).ok());
  json meant = container;
  meant["HostConfig"]["SecurityOpt"].push_back("unmask=ALL");
  EXPECT_TRUE(compare(meant, in_dockers_words(meant, found)).ok());
  const std::vector<std::pair<std::string, json>> changes = {
      {"IpcMode", "host"},
      {"PidMode", "host"},
      {"UTSMode", "host"},
      {"CgroupnsMode", "host"},
      {"CapDrop", nullptr},
      {"CapAdd", {"SYS_ADMIN"}},
      {"Runtime", "other"},
      {"Tmpfs", {{"/more", "rw"}}},
      {"Memory", 0},
      {"SecurityOpt", {"seccomp=unconfined"}},
      {"ReadonlyRootfs", false}};
  for (const auto& [key, value] : changes) {
    json changed = found;
    changed["HostConfig"][key] = value;
    EXPECT_FALSE(compare(meant, in_dockers_words(meant, changed)).ok()) << key;
  }
  json more = found;
  more["Mounts"].push_back(
      {{"Type", "bind"}, {"Source", "/"}, {"Destination", "/host"}, {"RW", true}});
  EXPECT_FALSE(compare(meant, in_dockers_words(meant, more)).ok());
}

TEST(DockerContainer, EverySettingThatDiffersIsNamed) {
  const json container = asked({step(StepKind::kBind, "usr", "/usr")});
  const std::vector<std::pair<std::string, json>> changes = {
      {"AutoRemove", false},
      {"RestartPolicy", {{"Name", "always"}}},
      {"Runtime", "other"},
      {"Privileged", true},
      {"CapAdd", {"SYS_ADMIN"}},
      {"CapDrop", nullptr},
      {"SecurityOpt", {"seccomp=unconfined"}},
      {"ReadonlyRootfs", false},
      {"NetworkMode", "bridge"},
      {"IpcMode", "host"},
      {"PidMode", "host"},
      {"UTSMode", "host"},
      {"CgroupnsMode", "host"},
      {"UsernsMode", "host"},
      {"MaskedPaths", {"/proc/keys"}},
      {"Memory", 0},
      {"MemorySwap", -1},
      {"PidsLimit", nullptr},
      {"NanoCpus", 0},
      {"Mounts", json::array()},
      {"Binds", {"/:/host"}},
      {"Devices", {{{"PathOnHost", "/dev/kvm"}}}},
      {"GroupAdd", {"0"}},
      {"Sysctls", {{"a", "b"}}}};
  for (const auto& [key, value] : changes) {
    json found = told(container);
    found["HostConfig"][key] = value;
    const Status compared = compare(container, found);
    ASSERT_FALSE(compared.ok()) << key;
    EXPECT_THAT(compared.error().message, HasSubstr("HostConfig." + key));
  }
  json found = told(container);
  found["Config"]["User"] = "0:0";
  EXPECT_THAT(compare(container, found).error().message, HasSubstr("Config.User"));
}

TEST(DockerContainer, MountsAreThoseThatWereAskedForAndNoOthers) {
  const json container = asked({step(StepKind::kBind, "usr", "/usr")});
  json more = told(container);
  more["Mounts"].push_back(
      {{"Type", "bind"}, {"Source", "/"}, {"Destination", "/host"}, {"RW", true}});
  EXPECT_THAT(compare(container, more).error().message, HasSubstr("Mounts /host"));
  json fewer = told(container);
  fewer["Mounts"].erase(2);
  EXPECT_THAT(compare(container, fewer).error().message, HasSubstr("Mounts /usr"));
  json writable = told(container);
  writable["Mounts"][2]["RW"] = true;
  EXPECT_FALSE(compare(container, writable).ok());
  EXPECT_FALSE(compare(container, json::object()).ok());
}

TEST(DockerContainer, OneThatOnlyALineLeadsToEndsWithWhoeverIsAttached) {
  ContainerTerms terms = usual_terms();
  terms.way = WayIn::kLine;
  terms.door.clear();
  auto made = translate({}, everything_exists, {}, terms);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value()["Cmd"], json({"contained-away"}));
  EXPECT_EQ(made.value()["OpenStdin"], true);
  EXPECT_EQ(made.value()["StdinOnce"], true);
  EXPECT_EQ(made.value()["Tty"], false);
  ASSERT_EQ(made.value()["HostConfig"]["Mounts"].size(), 1U);
  EXPECT_EQ(made.value()["HostConfig"]["Mounts"][0]["Target"], kProgram);
  json found = told(made.value());
  EXPECT_TRUE(compare(made.value(), found).ok());
  found["Config"]["StdinOnce"] = false;
  EXPECT_THAT(compare(made.value(), found).error().message, HasSubstr("Config.StdinOnce"));
  // Nobody else's input is opened.
  const json usual = asked();
  EXPECT_EQ(usual["OpenStdin"], false);
  EXPECT_EQ(usual["StdinOnce"], false);
}

}  // namespace
}  // namespace carrel::docker
