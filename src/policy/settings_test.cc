#include "policy/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>

#include "policy/setters.h"
#include "policy/spec_json.h"
#include "policy/validate.h"

namespace carrel::policy {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Status set(Spec& spec, std::string_view name, std::string_view text) {
  const Setting* setting = find_setting(name);
  EXPECT_NE(setting, nullptr) << name;
  return setting->set(spec, {name, text});
}

std::string value_of(const Spec& spec, std::string_view name) {
  const Setting* setting = find_setting(name);
  return setting == nullptr || setting->get == nullptr ? "(none)" : setting->get(spec);
}

TEST(SettingsTest, NamesAndAliasesAreUnique) {
  std::set<std::string> names;
  for (const Setting& setting : settings()) {
    EXPECT_TRUE(names.insert(key_name(setting.name)).second) << setting.name;
    for (const std::string_view alias : setting.aliases) {
      EXPECT_TRUE(names.insert(key_name(alias)).second) << alias;
    }
  }
}

TEST(SettingsTest, EveryRowIsComplete) {
  for (const Setting& setting : settings()) {
    EXPECT_FALSE(setting.help.empty()) << setting.name;
    EXPECT_FALSE(setting.help.ends_with(".")) << setting.name;
    EXPECT_NE(setting.set, nullptr) << setting.name;
    EXPECT_NE(setting.operations.bits, 0U) << setting.name;
    EXPECT_EQ(setting.placeholder.empty(), setting.is_flag()) << setting.name;
  }
}

TEST(SettingsTest, DashesAndUnderscoresAreTheSame) {
  EXPECT_EQ(find_setting("writable_root"), find_setting("writable-root"));
  EXPECT_EQ(find_setting("memory-limit"), find_setting("memory"));
  EXPECT_EQ(find_setting("memory_limt"), nullptr);
  EXPECT_EQ(find_setting(""), nullptr);
}

TEST(SettingsTest, OneShotDefaultsAreThoseOfTheRequirements) {
  const Spec spec = default_spec(Operation::kRun);
  EXPECT_EQ(value_of(spec, "image_name"), "host");
  EXPECT_EQ(value_of(spec, "memory_limit"), "512m");
  EXPECT_EQ(value_of(spec, "cpu_limit"), "1");
  EXPECT_EQ(value_of(spec, "timeout_seconds"), "60");
  EXPECT_EQ(value_of(spec, "pids_limit"), "512");
  EXPECT_EQ(value_of(spec, "network_enabled"), "false");
  EXPECT_EQ(value_of(spec, "allowed_read_paths"), "");
  EXPECT_EQ(value_of(spec, "allowed_write_paths"), "");
  EXPECT_EQ(value_of(spec, "tmp"), "100m");
}

TEST(SettingsTest, LongLivedDefaultsAreThoseOfTheRequirements) {
  const Spec spec = default_spec(Operation::kCreate);
  EXPECT_EQ(value_of(spec, "image"), "host");
  EXPECT_EQ(value_of(spec, "work_dir"), "/workspace");
  EXPECT_EQ(value_of(spec, "memory_limit"), "512m");
  EXPECT_EQ(value_of(spec, "cpu_limit"), "1");
  EXPECT_EQ(value_of(spec, "timeout"), "300");
  EXPECT_EQ(value_of(spec, "network_enabled"), "false");
}

TEST(SettingsTest, WhatIsDumpedIsReadBack) {
  Spec spec;
  ASSERT_TRUE(set(spec, "memory", "1.5g").ok());
  ASSERT_TRUE(set(spec, "cpus", "0.25").ok());
  ASSERT_TRUE(set(spec, "timeout", "1.5").ok());
  ASSERT_TRUE(set(spec, "pids", "7").ok());
  ASSERT_TRUE(set(spec, "disk", "64k").ok());
  ASSERT_TRUE(set(spec, "tmp", "1m").ok());
  ASSERT_TRUE(set(spec, "workdir", "/tmp//x/").ok());
  ASSERT_TRUE(set(spec, "image", "dir:/srv/root/").ok());
  ASSERT_TRUE(set(spec, "writable-root", "true").ok());
  ASSERT_TRUE(set(spec, "user", "bob").ok());
  ASSERT_TRUE(set(spec, "hostname", "box").ok());
  ASSERT_TRUE(set(spec, "require", "pids,memory").ok());
  ASSERT_TRUE(set(spec, "cgroup-parent", "/a").ok());
  Spec copy;
  for (const SettingValue& row : dump_settings(spec)) {
    if (!row.value.empty() && row.kind != ValueKind::kVariables) {
      ASSERT_TRUE(set(copy, row.name, row.value).ok()) << row.name << "=" << row.value;
    }
  }
  const auto expected = dump_settings(spec);
  const auto actual = dump_settings(copy);
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].value, expected[i].value) << expected[i].name;
  }
  EXPECT_EQ(copy.limits.memory_bytes, 1536ULL << 20);
  EXPECT_EQ(copy.workdir, "/tmp/x");
  EXPECT_EQ(copy.root_mode, RootMode::kThrowawayOverlay);
}

TEST(SettingsTest, BadValuesAreRefusedAndChangeNothing) {
  const struct {
    std::string_view name;
    std::string_view text;
  } kTable[] = {
      {"memory", "5m"},
      {"memory", "0"},
      {"memory", "1.5.2g"},
      {"cpus", "0.009"},
      {"cpus", "-1"},
      {"pids", "1"},
      {"pids", "4194305"},
      {"pids", "0"},
      {"timeout", "0"},
      {"timeout", "31d"},
      {"disk", "63k"},
      {"tmp", "1"},
      {"env", "A"},
      {"env", "=x"},
      {"workdir", "x"},
      {"workdir", "/.."},
      {"image", ""},
      {"image", "dir:x"},
      {"image", "\xff"},
      {"user", "0"},
      {"image", "../x:y"},
      {"image", "a//b"},
      {"hostname", "a b"},
      {"writable-root", "1"},
      {"network", "nome"},
      {"require", ""},
      {"network", "allow"},
      {"network", "allow=*"},
      {"network-out", "0"},
      {"network-in", "x"},
      {"network-lookups", "0"},
      {"network-connections", "0"},
      {"require", "memory,"},
      {"require", "gravity"},
      {"backend", "natve"},
      {"isolation", "x"},
      {"tier", "extreme"},
      {"network-enabled", ""},
      {"workspace", "../x"},
      {"cgroup-parent", "a/b"},
  };
  for (const auto& row : kTable) {
    Spec spec;
    const Status status = set(spec, row.name, row.text);
    ASSERT_FALSE(status.ok()) << row.name << "=" << row.text;
    EXPECT_EQ(status.error().code, Code::kInvalid) << row.name << "=" << row.text;
    EXPECT_THAT(status.error().message, StartsWith(std::string(row.name)));
    const Spec untouched;
    EXPECT_EQ(spec.limits.memory_bytes, untouched.limits.memory_bytes);
    EXPECT_TRUE(spec.required.empty());
    EXPECT_TRUE(spec.environment.empty());
  }
}

TEST(SettingsTest, PartsThatAreNotBuiltSaySo) {
  const struct {
    std::string_view name;
    std::string_view text;
  } kTable[] = {
      {"tier", "low"},
      {"backend", "kubernetes"},
      {"user", "root"},
      {"use-sandbox", "false"},
  };
  for (const auto& row : kTable) {
    Spec spec;
    const Status status = set(spec, row.name, row.text);
    ASSERT_FALSE(status.ok()) << row.name << "=" << row.text;
    EXPECT_EQ(status.error().code, Code::kUnavailable) << row.name;
    EXPECT_THAT(status.error().message, HasSubstr("is not built yet: ")) << row.name;
  }
}

TEST(SettingsTest, AVariableGivenAgainReplacesItsValue) {
  Spec spec;
  ASSERT_TRUE(set(spec, "env", "A=1").ok());
  ASSERT_TRUE(set(spec, "env", "B=2").ok());
  ASSERT_TRUE(set(spec, "env", "A=3").ok());
  ASSERT_EQ(spec.environment.size(), 2U);
  EXPECT_EQ(spec.environment[0].value, "3");
  EXPECT_EQ(value_of(spec, "env"), "A,B");
}

TEST(SettingsTest, UnknownWordsNameTheNearest) {
  Spec spec;
  EXPECT_THAT(set(spec, "backend", "natve").error().to_string(), HasSubstr("'native'"));
  EXPECT_THAT(set(spec, "backend", "bublewrap").error().to_string(), HasSubstr("'bubblewrap'"));
  EXPECT_THAT(set(spec, "require", "memory,pid").error().to_string(), HasSubstr("'pids'"));
  EXPECT_THAT(set(spec, "tier", "x").error().to_string(), HasSubstr("low, medium, high"));
}

TEST(SettingsTest, RequiredProtectionsAddUp) {
  Spec spec;
  ASSERT_TRUE(set(spec, "require", "memory,memory").ok());
  ASSERT_TRUE(set(spec, "require", "landlock").ok());
  EXPECT_EQ(spec.required.size(), 2U);
  EXPECT_EQ(value_of(spec, "require"), "memory,landlock");
}

TEST(SettingsTest, MountsAddUpAndDoNotOverlap) {
  Spec spec;
  ASSERT_TRUE(setters::set_mount(spec, {"--mount", "/srv/a:b:/data:rw"}).ok());
  ASSERT_TRUE(setters::set_mount(spec, {"--mount", "x:/data2"}).ok());
  EXPECT_FALSE(setters::set_mount(spec, {"--mount", "y:/data/inner"}).ok());
  EXPECT_FALSE(setters::set_mount(spec, {"--mount", "y:/etc"}).ok());
  ASSERT_EQ(spec.mounts.size(), 2U);
  EXPECT_EQ(setters::get_mount(spec), "/srv/a:b:/data:rw,x:/data2:ro");
}

TEST(SettingsTest, MountsAndListsTravelInASandboxsDescription) {
  Spec spec;
  spec.mount_grants = {MountGrants::By::kLists, {"/a"}, {"/b", "/\xff"}};
  spec.mounts = {{"/a/\xfe\n", "/data", MountMode::kReadOnly},
                 {"/b", "/out", MountMode::kReadWrite}};
  const auto copy = spec_from_json(spec_to_json(spec, Values::kLeftOut));
  ASSERT_TRUE(copy.ok()) << copy.error().to_string();
  EXPECT_EQ(copy.value().mount_grants.by, MountGrants::By::kLists);
  EXPECT_EQ(copy.value().mount_grants.read_paths, spec.mount_grants.read_paths);
  EXPECT_EQ(copy.value().mount_grants.write_paths, spec.mount_grants.write_paths);
  ASSERT_EQ(copy.value().mounts.size(), 2U);
  EXPECT_EQ(copy.value().mounts[0].source, "/a/\xfe\n");
  EXPECT_EQ(copy.value().mounts[0].mode, MountMode::kReadOnly);
  EXPECT_EQ(copy.value().mounts[1].target, "/out");
  EXPECT_EQ(copy.value().mounts[1].mode, MountMode::kReadWrite);
  const auto none = spec_from_json(spec_to_json(Spec{}, Values::kLeftOut));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none.value().mount_grants.by, MountGrants::By::kCommandLine);
}

}  // namespace
}  // namespace carrel::policy
