#include "policy/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace carrel::policy {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Result<Spec> spec_of(std::string_view text, Operation operation = Operation::kRun) {
  CARREL_ASSIGN(const Config config, parse_config(text, "carrel.toml"));
  return spec_from(config, operation);
}

std::string error_of(std::string_view text) {
  const auto result = parse_config(text, "carrel.toml");
  return result.ok() ? "(no error)" : result.error().to_string();
}

TEST(ConfigTest, AnEmptyFileIsTheDefaults) {
  for (const std::string_view text :
       {"", "\n", "# nothing\n", "[sandbox]\n", "[run]\n[create]\n"}) {
    const auto run = spec_of(text);
    ASSERT_TRUE(run.ok()) << run.error().to_string();
    EXPECT_EQ(run.value().limits.timeout, kOneShotTimeout);
    EXPECT_EQ(run.value().limits.memory_bytes, 512ULL << 20);
    EXPECT_EQ(spec_of(text, Operation::kCreate).value().limits.timeout, kLongLivedTimeout);
  }
}

TEST(ConfigTest, APartialSectionKeepsTheOtherDefaults) {
  const auto spec = spec_of("[sandbox]\ntimeout = 5\n", Operation::kCreate);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec.value().limits.timeout.count(), 5000);
  EXPECT_EQ(spec.value().limits.memory_bytes, 512ULL << 20);
  EXPECT_EQ(spec.value().limits.cpu_millis, 1000U);
  EXPECT_EQ(spec.value().image, "host");
}

TEST(ConfigTest, TheNamesOfTheRequirementsAreKeys) {
  const auto spec = spec_of(R"([sandbox]
image_name = "host"
work_dir = "/srv"
memory_limit = "1g"
cpu_limit = 0.5
timeout_seconds = 1.5
pids_limit = 20
network_enabled = false
allowed_read_paths = []
allowed_write_paths = []
use_sandbox = true
)");
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec.value().workdir, "/srv");
  EXPECT_EQ(spec.value().limits.memory_bytes, 1ULL << 30);
  EXPECT_EQ(spec.value().limits.cpu_millis, 500U);
  EXPECT_EQ(spec.value().limits.timeout.count(), 1500);
  EXPECT_EQ(spec.value().limits.pids, 20U);
}

TEST(ConfigTest, TheNamesOfTheOptionsAreKeys) {
  const auto spec = spec_of(R"(
memory = 67108864
cpus = 1
pids = 3
timeout = "2m"
disk = "64k"
tmp = "1m"
network = "none"
writable_root = true
user = "bob"
hostname = "box"
backend = "native"
isolation = "namespace"
require = ["memory", "pids"]
cgroup-parent = "/carrel"
)");
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec.value().limits.memory_bytes, 64ULL << 20);
  EXPECT_EQ(spec.value().limits.timeout.count(), 120'000);
  EXPECT_EQ(spec.value().root_mode, RootMode::kThrowawayOverlay);
  EXPECT_EQ(spec.value().required.size(), 2U);
  EXPECT_EQ(spec.value().cgroup_parent, "/carrel");
}

TEST(ConfigTest, TheTableOfACommandGoesOverTheCommonOne) {
  constexpr std::string_view kText = R"(
memory = "100m"
timeout = 7
[run]
memory = "200m"
[create]
memory = "300m"
)";
  EXPECT_EQ(spec_of(kText, Operation::kRun).value().limits.memory_bytes, 200ULL << 20);
  EXPECT_EQ(spec_of(kText, Operation::kCode).value().limits.memory_bytes, 200ULL << 20);
  EXPECT_EQ(spec_of(kText, Operation::kCreate).value().limits.memory_bytes, 300ULL << 20);
  EXPECT_EQ(spec_of(kText, Operation::kCreate).value().limits.timeout.count(), 7000);
}

TEST(ConfigTest, VariablesAreATableOrAnArray) {
  const auto table = spec_of("[env]\nA = \"1\"\nB = \"x=y\"\n");
  ASSERT_TRUE(table.ok()) << table.error().to_string();
  ASSERT_EQ(table.value().environment.size(), 2U);
  EXPECT_EQ(table.value().environment[1].value, "x=y");
  const auto array = spec_of("env = [\"A=1\", \"A=2\"]\n[run.env]\nB = \"3\"\n");
  ASSERT_TRUE(array.ok()) << array.error().to_string();
  ASSERT_EQ(array.value().environment.size(), 2U);
  EXPECT_EQ(array.value().environment[0].value, "2");
  EXPECT_EQ(array.value().environment[1].name, "B");
}

TEST(ConfigTest, AnUnknownKeyNamesTheNearest) {
  EXPECT_EQ(error_of("\n\nmemory_limt = \"1g\"\n"),
            "carrel.toml:3: unknown key 'memory_limt'; did you mean 'memory_limit'?");
  EXPECT_EQ(error_of("[sandbx]\n"), "carrel.toml:1: unknown key 'sandbx'; did you mean 'sandbox'?");
  EXPECT_EQ(error_of("[sandbox]\ncolour = 1\n"), "carrel.toml:2: unknown key 'colour'");
  EXPECT_THAT(error_of("[sandbox.run]\n"), HasSubstr("unknown key 'run'"));
  EXPECT_THAT(error_of("\"a\\u0000\\u001b\" = 1"), HasSubstr("'a\\x00\\x1b'"));
}

TEST(ConfigTest, WrongTypesAreErrorsThatNameTheKey) {
  const struct {
    std::string_view text;
    std::string_view message;
  } kTable[] = {
      {"memory = true",
       "'memory' must be a string like \"512m\" or a whole number of bytes, not a"},
      {"memory = 1.5", "not a number with a fraction"},
      {"memory = [1]", "not an array"},
      {"[memory]", "not a table"},
      {"cpus = \"1\"", "'cpus' must be a number, not a string"},
      {"pids_limit = \"50\"", "'pids_limit' must be a whole number, not a string"},
      {"pids = 1.5", "'pids' must be a whole number"},
      {"timeout = false", "'timeout' must be"},
      {"timeout = 2024-01-01", "not a date"},
      {"network_enabled = \"false\"", "'network_enabled' must be true or false, not a string"},
      {"network_enabled = 0", "'network_enabled' must be true or false, not a whole number"},
      {"writable_root = \"true\"", "must be true or false"},
      {"network = false", "'network' must be a string or an array of rules, not a boolean"},
      {"image = 3", "'image' must be a string"},
      {"env = \"A=1\"", "'env' must be a table of strings"},
      {"env = [1]", "'env' must be a table of strings"},
      {"[env]\nA = 1", "env.A must be a string, not a whole number"},
      {"[env]\n\"A=B\" = \"c\"", "'A=B' is not a name for a variable"},
      {"require = [1]", "'require' must be an array of strings"},
      {"allowed_read_paths = {}", "'allowed_read_paths' must be an array of strings, not a table"},
      {"sandbox = 1", "'sandbox' must be a table, not a whole number"},
      {"run = []", "'run' must be a table"},
  };
  for (const auto& row : kTable) {
    EXPECT_THAT(error_of(row.text), HasSubstr(std::string(row.message)));
    EXPECT_THAT(error_of(row.text), StartsWith("carrel.toml:"));
  }
}

TEST(ConfigTest, BadValuesNameTheFileTheLineAndTheKey) {
  const struct {
    std::string_view text;
    std::string_view message;
  } kTable[] = {
      {"\nmemory_limit = \"1.5.2g\"", "carrel.toml:2: memory_limit '1.5.2g': not a size"},
      {"memory = 0", "carrel.toml:1: memory '0': a size cannot be zero"},
      {"memory = -1", "cannot be negative"},
      {"timeout = 0", "cannot be zero"},
      {"timeout = inf", "not a duration"},
      {"cpus = nan", "not a number of cores"},
      {"cpus = -0.5", "cannot be negative"},
      {"cpus = 1e300", "too large"},
      {"[create]\npids = 1", "carrel.toml:2: pids '1': must be at least 2"},
      {"work_dir = \"../x\"", "must be an absolute path"},
      {"env = [\"A\"]", "has no value"},
      {"require = \"memory,gravity\"", "not a protection"},
      {"require = [\n\"memory\",\n\"x\"]", "carrel.toml:3: require 'x'"},
  };
  for (const auto& row : kTable) {
    EXPECT_THAT(error_of(row.text), HasSubstr(std::string(row.message)));
  }
}

TEST(ConfigTest, TheSameSettingUnderTwoNamesIsAnError) {
  EXPECT_THAT(error_of("memory = \"1g\"\nmemory_limit = \"2g\""), HasSubstr("is given twice"));
  EXPECT_THAT(error_of("memory = \"1g\"\n[sandbox]\nmemory = \"2g\""), HasSubstr("given twice"));
  EXPECT_THAT(error_of("memory = \"1g\"\nmemory = \"2g\""), StartsWith("carrel.toml:2: "));
}

TEST(ConfigTest, TheNetworkIsAWordOrAListOfWhatItAllows) {
  const auto network = [](std::string_view text) {
    const auto config = parse_config(text, "carrel.toml");
    EXPECT_TRUE(config.ok()) << text << config.error().to_string();
    return network_text(spec_from(config.value(), Operation::kRun).value().network);
  };
  EXPECT_EQ(network(""), "none");
  EXPECT_EQ(network("network = \"none\""), "none");
  EXPECT_EQ(network("network = \"full\""), "full");
  EXPECT_EQ(network("network = []"), "allow=");
  EXPECT_EQ(network("network = [\"a.org\", \"tcp:b.org:22\"]"), "allow=a.org,tcp:b.org:22");
  EXPECT_EQ(network("network_enabled = true"), "full");
  EXPECT_EQ(network("network_enabled = false"), "none");
  EXPECT_EQ(network("[sandbox]\nnetwork = [\"a.org\"]\n[run]\nnetwork_enabled = true"),
            "allow=a.org");
  EXPECT_EQ(network("[sandbox]\nnetwork = \"full\"\n[run]\nnetwork = []"), "allow=");
}

TEST(ConfigTest, ANetworkThatMakesNoSenseIsAnErrorWithItsPlace) {
  EXPECT_THAT(error_of("network = [\"a.org\",\n\"pypy\"]"),
              AllOf(StartsWith("carrel.toml:2: network 'pypy'"), HasSubstr("'pypi'")));
  EXPECT_THAT(error_of("network = [\"a.org,b.org\"]"), HasSubstr("comma"));
  EXPECT_THAT(error_of("network = [1]"), HasSubstr("array of rules"));
  EXPECT_THAT(error_of("network = [\"full\"]"), HasSubstr("neither a preset"));
  EXPECT_THAT(error_of("network = \"none\"\nnetwork_enabled = true"), HasSubstr("given twice"));
  EXPECT_THAT(error_of("network_enabled = true\n[sandbox]\nnetwork = []"),
              HasSubstr("given twice"));
}

TEST(ConfigTest, PartsThatAreNotBuiltAreUnavailable) {
  for (const std::string_view text : {"tier = \"low\"", "use_sandbox = false"}) {
    const auto result = parse_config(text, "carrel.toml");
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_EQ(result.error().code, Code::kUnavailable) << text;
    EXPECT_THAT(result.error().message, HasSubstr("not built yet")) << text;
  }
}

TEST(ConfigTest, WhatIsNotTomlIsOneLineWithItsPlace) {
  for (const std::string_view text :
       {"memory", "memory = ", "= 1", "[", "a = \"\n\"", "\xff", "a = 1\n\x01"}) {
    const std::string error = error_of(text);
    EXPECT_THAT(error, StartsWith("carrel.toml:")) << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_THAT(error_of(std::string_view("a\0b = 1", 7)), StartsWith("carrel.toml:"));
}

TEST(ConfigTest, TextThatBreaksTheParsersOwnExpectationsIsAnError) {
  for (const std::string_view text :
       {"a = [}]", "a = [1,}]", "[[[1]]]", "[[=", "a = {]}", "a.\xcd\xa4 = 1", "\xc3\xa4 = 1"}) {
    EXPECT_THAT(error_of(text), StartsWith("carrel.toml:")) << text;
  }
}

TEST(ConfigTest, HugeAndDeepFilesAreRefused) {
  EXPECT_THAT(error_of(std::string(kLargestConfig + 1, '#')), HasSubstr("larger than 64k"));
  EXPECT_EQ(error_of(std::string(kLargestConfig, '#')), "(no error)");
  std::string keys = "a";
  for (int i = 0; i < 30'000; ++i) {
    keys += ".a";
  }
  EXPECT_THAT(error_of(keys + " = 1"), HasSubstr("dots in one line"));
  const std::string brackets = "a = " + std::string(60'000, '[');
  EXPECT_THAT(error_of(brackets), StartsWith("carrel.toml:1: "));
}

TEST(ConfigTest, AHostilePathIsEscaped) {
  const auto result = parse_config("x = 1", "a\nb");
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.error().message, StartsWith("a\\nb:1: "));
}

TEST(ConfigTest, AnErrorDoesNotShowTheValueOfAVariable) {
  EXPECT_THAT(error_of("[env]\n\"A-B\" = \"secret\""), Not(HasSubstr("secret")));
}

// R119
TEST(ConfigTest, ListsOfPathsDecideAboutMountsEvenIfTheyAreEmpty) {
  EXPECT_EQ(spec_of("memory = \"1g\"")->mount_grants.by, MountGrants::By::kCommandLine);
  for (const std::string_view text :
       {"allowed_read_paths = []", "[sandbox]\nallowed_write_paths = []",
        "[run]\nallowed_read_paths = []"}) {
    const auto spec = spec_of(text);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_EQ(spec.value().mount_grants.by, MountGrants::By::kLists) << text;
    EXPECT_TRUE(spec.value().mount_grants.read_paths.empty());
    EXPECT_TRUE(spec.value().mount_grants.write_paths.empty());
  }
  auto spec = spec_of("allowed_read_paths = [\"/a/\", \"/b\"]\nallowed_write_paths = [\"/c\"]\n");
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->mount_grants.read_paths, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(spec->mount_grants.write_paths, (std::vector<std::string>{"/c"}));
}

// R135
TEST(ConfigTest, EmptyRelativeAndTildePathsInListsAreErrors) {
  for (const std::string_view path : {"", "~", "~/x", "x", ".", "/a/../b"}) {
    const std::string text = "allowed_read_paths = [\"" + std::string(path) + "\"]";
    EXPECT_THAT(error_of(text), HasSubstr("allowed_read_paths")) << path;
    EXPECT_THAT(error_of(text), StartsWith("carrel.toml:1")) << path;
  }
}

// R133
TEST(ConfigTest, ReadonlyOfAMountIsABooleanAndNothingElse) {
  const std::string mount = "[[mounts]]\nsource = \"/srv/a:b\"\ntarget = \"/data\"\n";
  const auto with = [&](const std::string& rest) { return error_of(mount + rest); };
  for (const std::string good : {"", "readonly = true", "readonly = false"}) {
    auto spec = spec_of(mount + good);
    ASSERT_TRUE(spec.ok() && spec->mounts.size() == 1) << good;
    EXPECT_EQ(spec->mounts[0].source, "/srv/a:b");
    EXPECT_EQ(spec->mounts[0].target, "/data");
    EXPECT_EQ(spec->mounts[0].mode,
              good == "readonly = false" ? MountMode::kReadWrite : MountMode::kReadOnly)
        << good;
  }
  for (const std::string bad : {"readonly = \"false\"", "readonly = 0", "readonly = \"\"",
                                "readonly = []", "read_only = false", "readonly = 0.0"}) {
    EXPECT_THAT(with(bad), HasSubstr("read")) << bad;
  }
  EXPECT_THAT(error_of("mount = [{source = \"/srv\"}]"), HasSubstr("has no target"));
  EXPECT_THAT(error_of("mount = [{source = \"/srv\", target = \"/a:/b\"}]"), HasSubstr("':'"));
  EXPECT_THAT(error_of("mount = [{source = 5, target = \"/b\"}]"), HasSubstr("must be a string"));
  EXPECT_THAT(error_of("mount = [5]"), HasSubstr("must be an array"));
}

}  // namespace
}  // namespace carrel::policy
