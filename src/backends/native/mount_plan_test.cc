#include "backends/native/mount_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/boot.h"

namespace carrel::native {
namespace {

using protocol::StepKind;
using testing::HasSubstr;

// A step with strings of its own.
struct Step {
  protocol::MountStep fields;
  std::string path;
  std::string source;

  [[nodiscard]] StepKind kind() const { return fields.kind; }
  [[nodiscard]] bool has(std::uint32_t flag) const { return (fields.flags & flag) != 0; }
  // Whether `source` is a path on the host.
  [[nodiscard]] bool names_the_host() const {
    return kind() == StepKind::kBind || kind() == StepKind::kDevice || kind() == StepKind::kOverlay;
  }
};

std::vector<Step> decode(const std::string& plan) {
  protocol::Reader reader({reinterpret_cast<const unsigned char*>(plan.data()), plan.size()});
  std::vector<Step> steps;
  protocol::MountStep step;
  while (protocol::parse_step(reader, step)) {
    steps.push_back({step, std::string(step.path), std::string(step.source)});
  }
  EXPECT_TRUE(reader.finished()) << "the guest would refuse this plan";
  return steps;
}

HostTree some_host() {
  HostTree host;
  host.directories = {"usr", "lib64"};
  host.links = {{"bin", "usr/bin"}, {"lib", "usr/lib"}};
  host.etc.files = {"ld.so.cache", "localtime"};
  host.etc.folders = {"alternatives", "ssl/certs"};
  host.etc.texts = {{"timezone", "Etc/UTC\n"}, {"maven/logging/simplelogger.properties", "x"}};
  host.etc.links = {{"inputrc", "../usr/lib/inputrc"}};
  return host;
}

Identity some_identity() {
  return {1234, 1235, std::string(32, 'a'), 3, "a-boot-id", 1'700'000'000};
}

MountPlan plan_of(const policy::Spec& spec, Lifetime lifetime = Lifetime::kOneShot,
                  const HostTree& host = some_host()) {
  auto plan = plan_mounts(spec, host, some_identity(), lifetime);
  EXPECT_TRUE(plan.ok());
  return plan.ok() ? std::move(plan.value()) : MountPlan{};
}

std::vector<Step> steps_of(const policy::Spec& spec, Lifetime lifetime = Lifetime::kOneShot,
                           const HostTree& host = some_host()) {
  const MountPlan plan = plan_of(spec, lifetime, host);
  return decode(plan.shared + plan.alike + plan.own);
}

// Every kind of sandbox there is.
std::vector<policy::Spec> all_specs() {
  policy::Spec plain;
  policy::Spec writable;
  writable.root_mode = policy::RootMode::kThrowawayOverlay;
  policy::Spec directory;
  directory.image = "dir:/srv/image";
  policy::Spec writable_directory = directory;
  writable_directory.root_mode = policy::RootMode::kThrowawayOverlay;
  policy::Spec code;
  code.code = "print(42)\n";
  return {plain, writable, directory, writable_directory, code};
}

void each_plan(const std::function<void(const policy::Spec&, const std::vector<Step>&)>& check) {
  for (const policy::Spec& spec : all_specs()) {
    for (const Lifetime lifetime : {Lifetime::kOneShot, Lifetime::kLongLived}) {
      SCOPED_TRACE(spec.image + (spec.root_mode == policy::RootMode::kReadOnly ? "" : " writable") +
                   (lifetime == Lifetime::kOneShot ? "" : " long-lived"));
      check(spec, steps_of(spec, lifetime));
    }
  }
}

std::size_t place_of(const std::vector<Step>& steps, StepKind kind, std::string_view path) {
  const auto at = std::find_if(steps.begin(), steps.end(), [&](const Step& step) {
    return step.kind() == kind && step.path == path;
  });
  return static_cast<std::size_t>(at - steps.begin());
}

const Step* find(const std::vector<Step>& steps, StepKind kind, std::string_view path) {
  const std::size_t at = place_of(steps, kind, path);
  return at < steps.size() ? &steps[at] : nullptr;
}

std::string content_of(const std::vector<Step>& steps, StepKind kind, std::string_view path) {
  const Step* step = find(steps, kind, path);
  return step == nullptr ? "(no such file)" : step->source;
}

TEST(MountPlan, EveryBindOfTheHostIsReadOnly) {
  int binds = 0;
  each_plan([&](const policy::Spec&, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind() == StepKind::kBind) {
        ++binds;
        EXPECT_TRUE(step.has(protocol::kStepReadOnly)) << step.source;
      }
    }
  });
  EXPECT_GT(binds, 0);
}

TEST(MountPlan, NoStepNamesAHostPathOutsideTheImage) {
  const std::set<std::string> devices = {"/dev/null",   "/dev/zero",    "/dev/full",
                                         "/dev/random", "/dev/urandom", "/dev/tty"};
  each_plan([&](const policy::Spec& spec, const std::vector<Step>& steps) {
    std::set<std::string> image = {"/srv/image"};
    if (spec.image == "host") {
      image = {"/usr",          "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives",
               "/etc/ssl/certs"};
    }
    for (const Step& step : steps) {
      if (step.names_the_host()) {
        const auto& allowed = step.kind() == StepKind::kDevice ? devices : image;
        EXPECT_TRUE(allowed.contains(step.source)) << step.source;
      }
    }
  });
}

TEST(MountPlan, ImageFromADirectoryTakesNothingOfTheHostsOwn) {
  char name[] = "/tmp/carrel-image-XXXXXX";
  const std::string image = ::mkdtemp(name);
  for (const char* folder : {"usr", "etc", "etc/extra", "home", "proc", "var"}) {
    std::filesystem::create_directory(image + "/" + folder);
  }
  std::ofstream(image + "/etc/passwd") << "root::0:0::/:/bin/sh\n";
  policy::Spec spec;
  spec.image = "dir:" + image;
  std::vector<std::string> sources;
  for (const Step& step : steps_of(spec)) {
    if (step.kind() == StepKind::kBind || step.kind() == StepKind::kOverlay) {
      sources.push_back(step.source + " at " + step.path);
    }
  }
  std::filesystem::remove_all(image);
  EXPECT_THAT(sources, ::testing::UnorderedElementsAre(image + "/usr at usr",
                                                       image + "/etc/extra at etc/extra"));
}

TEST(MountPlan, ThisHostGivesOnlyWhatIsDocumented) {
  const std::set<std::string> documented = {"/usr",
                                            "/bin",
                                            "/sbin",
                                            "/lib",
                                            "/lib32",
                                            "/lib64",
                                            "/libx32",
                                            "/etc/alternatives",
                                            "/etc/ssl/certs",
                                            "/etc/ld.so.cache",
                                            "/etc/ssl/openssl.cnf",
                                            "/etc/localtime",
                                            "/etc/mime.types",
                                            "/etc/services",
                                            "/etc/protocols",
                                            "/etc/fonts",
                                            "/etc/java-17-openjdk/security",
                                            "/etc/java-21-openjdk/security",
                                            "/etc/java-25-openjdk/security",
                                            "/etc/libreoffice/registry"};
  const HostTree host = look_at_host();
  bool has_programs = false;
  for (const Step& step : steps_of({}, Lifetime::kOneShot, host)) {
    if (step.kind() == StepKind::kBind) {
      EXPECT_TRUE(documented.contains(step.source)) << step.source;
      has_programs = has_programs || step.source == "/usr";
    }
  }
  EXPECT_TRUE(has_programs);
  for (const auto& [name, target] : host.links) {
    EXPECT_FALSE(target.empty()) << name;
  }
}

TEST(MountPlan, TheHomeOfAnImageIsUnderWhatIsWrittenToIt) {
  policy::Spec spec;
  spec.image = "dir:/srv/image";
  std::vector<GivenTree> trees(1);
  trees[0].path = "/srv/image/root";
  trees[0].target = "/home/agent";
  trees[0].overlay.emplace();
  trees[0].overlay->place = "/root";
  auto plan =
      plan_mounts(spec, some_host(), some_identity(), Lifetime::kOneShot, {trees, TreesBy::kPath});
  ASSERT_TRUE(plan.ok());
  const std::vector<Step> own = decode(plan->own);
  const auto tree = std::find_if(own.begin(), own.end(),
                                 [](const Step& step) { return step.kind() == StepKind::kTree; });
  ASSERT_LT(tree, own.end() - 1);
  EXPECT_EQ(tree->source, "/srv/image/root");
  EXPECT_EQ(tree->path, "home/agent");
  EXPECT_TRUE(tree->has(protocol::kStepReadOnly));
  const Step& overlay = *(tree + 1);
  EXPECT_EQ(overlay.kind(), StepKind::kOverlay);
  EXPECT_EQ(overlay.path, "home/agent");
  EXPECT_EQ(overlay.source, "") << "what is mounted there";
  for (const Step& step : own) {
    EXPECT_FALSE(step.kind() == StepKind::kAttach && step.path == "home/agent");
  }
  EXPECT_EQ(content_of(decode(plan->shared), StepKind::kLink, "root"), "home/agent");
}

TEST(MountPlan, EveryPathStaysBelowTheRoot) {
  each_plan([](const policy::Spec&, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      if (step.kind() == StepKind::kTmpfs) {
        continue;  // its path is a name for messages
      }
      EXPECT_FALSE(step.path.starts_with("/")) << step.path;
      EXPECT_THAT("/" + step.path + "/", testing::Not(HasSubstr("/../")));
    }
  });
}

TEST(MountPlan, StepsFitTheGuestsTables) {
  each_plan([](const policy::Spec&, const std::vector<Step>& steps) {
    EXPECT_LE(steps.size(), protocol::kMaxSteps);
    std::set<int> slots;
    for (const Step& step : steps) {
      if (step.kind() == StepKind::kTmpfs) {
        EXPECT_TRUE(slots.insert(step.fields.slot).second) << "slot used twice";
        EXPECT_GT(step.fields.size, 0U);
        EXPECT_GT(step.fields.count, 0U);
      }
    }
    for (const Step& step : steps) {
      const bool uses_slot = step.kind() == StepKind::kSubdirectory ||
                             step.kind() == StepKind::kAttach ||
                             step.kind() == StepKind::kOverlay || step.kind() == StepKind::kReplace;
      EXPECT_TRUE(!uses_slot || slots.contains(step.fields.slot)) << step.path;
    }
  });
}

TEST(MountPlan, WhatTellsAboutTheHostIsMaskedInANewProc) {
  const std::vector<std::string> hidden = {
      "kcore",       "keys",       "key-users",   "kallsyms",      "kmsg",        "interrupts",
      "modules",     "timer_list", "sched_debug", "sysrq-trigger", "slabinfo",    "vmallocinfo",
      "config.gz",   "acpi",       "asound",      "scsi",          "bus",         "fs",
      "irq",         "driver",     "mtrr",        "kpagecount",    "kpageflags",  "latency_stats",
      "timer_stats", "softirqs",   "diskstats",   "partitions",    "kpagecgroup", "iomem"};
  each_plan([&](const policy::Spec&, const std::vector<Step>& steps) {
    const std::size_t proc = place_of(steps, StepKind::kProc, "proc");
    ASSERT_LT(proc, steps.size());
    for (const std::string& name : hidden) {
      const std::size_t at = place_of(steps, StepKind::kMask, "proc/" + name);
      ASSERT_LT(at, steps.size()) << name;
      EXPECT_LT(proc, at) << name << " is masked before there is a proc";
    }
    const std::size_t settings = place_of(steps, StepKind::kReadOnly, "proc/sys");
    ASSERT_LT(settings, steps.size());
    EXPECT_LT(proc, settings);
  });
}

TEST(MountPlan, NumbersInProcAreTheSandboxsOwn) {
  policy::Spec spec;
  spec.limits.memory_bytes = 256ULL << 20;
  const std::vector<Step> steps = steps_of(spec);
  EXPECT_NE(find(steps, StepKind::kMask, "proc/cmdline"), nullptr);
  EXPECT_NE(find(steps, StepKind::kMask, "proc/version"), nullptr);
  EXPECT_THAT(content_of(steps, StepKind::kReplace, "proc/meminfo"),
              HasSubstr("MemTotal:       262144 kB\n"));
  const std::string stat = content_of(steps, StepKind::kReplace, "proc/stat");
  EXPECT_THAT(stat, HasSubstr("\ncpu2 "));
  EXPECT_THAT(stat, testing::Not(HasSubstr("\ncpu3 ")));
  EXPECT_THAT(stat, HasSubstr("\nbtime 1700000000\n"));
  EXPECT_EQ(content_of(steps, StepKind::kReplace, "proc/sys/kernel/random/boot_id"), "a-boot-id\n");
  EXPECT_LT(place_of(steps, StepKind::kReadOnly, "proc/sys"),
            place_of(steps, StepKind::kReplace, "proc/sys/kernel/random/boot_id"));
  EXPECT_NE(find(steps, StepKind::kReplace, "proc/loadavg"), nullptr);
}

TEST(MountPlan, SharedPartIsSealedLastUnlessItIsWritable) {
  for (const policy::Spec& spec : all_specs()) {
    const std::vector<Step> steps = decode(plan_of(spec).shared);
    const std::size_t seal = place_of(steps, StepKind::kSealRoot, "");
    if (spec.root_mode == policy::RootMode::kReadOnly) {
      EXPECT_EQ(seal, steps.size() - 1);
    } else {
      EXPECT_EQ(seal, steps.size());
    }
  }
}

TEST(MountPlan, WhatIsOneSandboxsOwnIsNotInTheSharedPart) {
  for (const policy::Spec& spec : all_specs()) {
    for (const Step& step : decode(plan_of(spec).shared)) {
      const std::set<StepKind> own = {StepKind::kTmpfs,  StepKind::kSubdirectory, StepKind::kAttach,
                                      StepKind::kProc,   StepKind::kDevpts,       StepKind::kMask,
                                      StepKind::kReplace};
      EXPECT_FALSE(own.contains(step.kind())) << step.path;
    }
  }
  policy::Spec spec;
  auto other =
      plan_mounts(spec, some_host(), {1234, 1235, "other", 1, "other-id", 5}, Lifetime::kOneShot);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other.value().shared, plan_of(spec).shared) << "the identity is in the shared part";
  EXPECT_EQ(other.value().alike, plan_of(spec).alike) << "the identity is in what is alike";
}

TEST(MountPlan, OwnPartChangesNothingInTheSharedOne) {
  for (const policy::Spec& spec : all_specs()) {
    const MountPlan plan = plan_of(spec);
    for (const Step& step : decode(plan.alike + plan.own)) {
      const std::set<StepKind> changes = {StepKind::kDirectory, StepKind::kLink,
                                          StepKind::kFile,      StepKind::kBind,
                                          StepKind::kDevice,    StepKind::kOverlay};
      EXPECT_FALSE(changes.contains(step.kind())) << step.path;
    }
  }
}

TEST(MountPlan, OnlyThePlainOneShotOfTheHostComesFromANursery) {
  for (const policy::Spec& spec : all_specs()) {
    const bool plain = spec.image == "host" && spec.root_mode == policy::RootMode::kReadOnly;
    EXPECT_EQ(plan_of(spec).nursing == MountPlan::Nursing::kPossible, plain);
    EXPECT_EQ(plan_of(spec, Lifetime::kLongLived).nursing, MountPlan::Nursing::kImpossible);
  }
}

TEST(MountPlan, ReplacedFileOfTheHostIsAnotherSource) {
  HostTree host = some_host();
  host.sources = "1:2 ";
  EXPECT_EQ(plan_of({}, Lifetime::kOneShot, host).sources, "1:2 ");
  EXPECT_FALSE(look_at_host().sources.empty());
}

TEST(MountPlan, WhatIsBuiltAheadIsUsedForTheSameKindOnly) {
  HostTree host = some_host();
  host.sources = "1:2 ";
  const MountPlan built = plan_of({}, Lifetime::kLongLived, host);
  EXPECT_EQ(rest_after(built, built), "");
  policy::Spec sizes;
  sizes.limits.tmp_bytes = 1U << 20;
  sizes.limits.disk_bytes = 2U << 20;
  sizes.limits.memory_bytes = 64U << 20;
  const auto rest = rest_after(built, plan_of(sizes, Lifetime::kLongLived, host));
  ASSERT_TRUE(rest.has_value());
  const std::vector<Step> steps = decode(*rest);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(find(steps, StepKind::kTmpfs, "/workspace")->fields.size, 2U << 20);
  EXPECT_EQ(find(steps, StepKind::kTmpfs, "/tmp")->fields.size, 1U << 20);
  EXPECT_THAT(content_of(steps, StepKind::kReplace, "proc/meminfo"), HasSubstr(" 65536 kB"));
  // Whatever else is different, it is built anew.
  policy::Spec named;
  named.hostname = "other";
  policy::Spec user;
  user.user = "somebody";
  for (const policy::Spec& spec : {named, user, all_specs()[1], all_specs()[2]}) {
    EXPECT_FALSE(rest_after(built, plan_of(spec, Lifetime::kLongLived, host)).has_value());
  }
  host.sources = "1:3 ";
  EXPECT_FALSE(rest_after(built, plan_of({}, Lifetime::kLongLived, host)).has_value());
  EXPECT_FALSE(rest_after(built, plan_of({}, Lifetime::kOneShot, host)).has_value());
}

TEST(MountPlan, WritableRootIsAThrowAwayOverlayOfEveryPart) {
  policy::Spec spec;
  spec.root_mode = policy::RootMode::kThrowawayOverlay;
  spec.limits.disk_bytes = 64ULL << 20;
  const std::vector<Step> steps = steps_of(spec);
  EXPECT_NE(find(steps, StepKind::kOverlay, "usr"), nullptr);
  EXPECT_NE(find(steps, StepKind::kOverlay, "lib64"), nullptr);
  const Step* upper = find(steps, StepKind::kTmpfs, "the writable root");
  ASSERT_NE(upper, nullptr);
  EXPECT_EQ(upper->fields.size, 64ULL << 20);
  EXPECT_EQ(find(steps_of({}), StepKind::kOverlay, "usr"), nullptr);
}

TEST(MountPlan, StagingDirectoryIsNeverAboveTheImage) {
  for (const char* image :
       {"/srv/image", "/sys/image", "/sys", "/tmp/image", "/tmp", "/tmp/a/b/c", "/home/user/image",
        "/run/image", "/var/lib/image", "/mnt", "/system", "/"}) {
    policy::Spec spec;
    spec.image = std::string("dir:") + image;
    const std::string staging = plan_of(spec).staging;
    ASSERT_TRUE(staging.starts_with("/")) << image;
    EXPECT_FALSE((std::string(image) + "/").starts_with(staging + "/")) << image << " " << staging;
  }
}

TEST(MountPlan, LongLivedSandboxHasATmpfsForItsGuest) {
  policy::Spec spec;
  EXPECT_NE(find(steps_of(spec, Lifetime::kLongLived), StepKind::kTmpfs, "the guest"), nullptr);
  EXPECT_EQ(find(steps_of(spec, Lifetime::kOneShot), StepKind::kTmpfs, "the guest"), nullptr);
}

TEST(MountPlan, GuestsTmpfsIsMountedNowhereInTheSandbox) {
  const std::vector<Step> steps = steps_of({}, Lifetime::kLongLived);
  const Step* own = find(steps, StepKind::kTmpfs, "the guest");
  ASSERT_NE(own, nullptr);
  for (const Step& step : steps) {
    if (step.kind() == StepKind::kAttach) {
      EXPECT_NE(step.fields.slot, own->fields.slot) << step.path;
    }
  }
}

TEST(MountPlan, CodeIsAFileOfItsOwnInTheWorkspace) {
  policy::Spec spec;
  spec.code = std::string("print('\0')\n", 11);
  const std::vector<Step> steps = steps_of(spec);
  const std::size_t at = place_of(steps, StepKind::kReplace, "workspace/code");
  ASSERT_LT(at, steps.size());
  EXPECT_EQ(steps[at].source, spec.code);
  EXPECT_TRUE(steps[at].has(protocol::kStepIsFile));
  EXPECT_LT(place_of(steps, StepKind::kAttach, "workspace"), at);
  EXPECT_EQ(find(steps_of({}), StepKind::kReplace, "workspace/code"), nullptr);
}

TEST(MountPlan, CodeThatDoesNotFitIsAResourceError) {
  policy::Spec spec;
  spec.code = std::string(protocol::kMaxPlan, 'x');
  const auto plan = plan_mounts(spec, some_host(), some_identity(), Lifetime::kOneShot);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::kResource);
}

TEST(MountPlan, EveryWritablePathIsAMountWithASize) {
  each_plan([](const policy::Spec& spec, const std::vector<Step>& steps) {
    EXPECT_EQ(writable_paths(spec),
              (std::vector<std::string>{"/workspace", "/home/agent", "/tmp", "/dev/shm"}));
    for (const std::string& path : writable_paths(spec)) {
      EXPECT_NE(find(steps, StepKind::kAttach, path.substr(1)), nullptr) << path;
    }
  });
}

TEST(MountPlan, SizesAreThoseOfTheLimits) {
  policy::Spec spec;
  spec.limits.disk_bytes = 3ULL << 20;
  spec.limits.tmp_bytes = 5ULL << 20;
  const std::vector<Step> steps = steps_of(spec);
  const Step* disk = find(steps, StepKind::kTmpfs, "/workspace");
  const Step* tmp = find(steps, StepKind::kTmpfs, "/tmp");
  ASSERT_TRUE(disk != nullptr && tmp != nullptr);
  EXPECT_EQ(disk->fields.size, 3ULL << 20);
  EXPECT_EQ(tmp->fields.size, 5ULL << 20);
  for (const char* path : {"workspace", "home/agent"}) {
    EXPECT_EQ(find(steps, StepKind::kAttach, path)->fields.slot, disk->fields.slot) << path;
  }
  for (const char* path : {"tmp", "dev/shm"}) {
    EXPECT_EQ(find(steps, StepKind::kAttach, path)->fields.slot, tmp->fields.slot) << path;
  }
}

GivenTree some_tree(const std::string& target,
                    policy::MountMode mode = policy::MountMode::kReadOnly) {
  GivenTree tree;
  tree.path = "/srv/tree";
  tree.target = target;
  tree.mode = mode;
  return tree;
}

std::vector<Step> steps_with(const std::vector<GivenTree>& trees, TreesBy by, MountPlan* whole) {
  auto plan = plan_mounts({}, some_host(), some_identity(), Lifetime::kOneShot, {trees, by});
  EXPECT_TRUE(plan.ok());
  *whole = std::move(plan.value());
  return decode(whole->shared + whole->alike + whole->own);
}

TEST(MountPlan, TreesAreReadOnlyUnlessTheyAreMeantToBeWritten) {
  std::vector<GivenTree> trees;
  trees.push_back(some_tree("/data"));
  trees.push_back(some_tree("/workspace/out", policy::MountMode::kReadWrite));
  MountPlan plan;
  const std::vector<Step> steps = steps_with(trees, TreesBy::kPath, &plan);
  const Step* data = find(steps, StepKind::kTree, "data");
  const Step* out = find(steps, StepKind::kTree, "workspace/out");
  ASSERT_TRUE(data != nullptr && out != nullptr);
  EXPECT_TRUE(data->has(protocol::kStepReadOnly));
  EXPECT_FALSE(out->has(protocol::kStepReadOnly));
  EXPECT_EQ(data->fields.slot, 0);
  EXPECT_EQ(out->fields.slot, 1);
  EXPECT_EQ(data->source, "/srv/tree");
  const std::vector<std::string> writable = writable_paths({}, trees);
  EXPECT_EQ(std::count(writable.begin(), writable.end(), "/workspace/out"), 1);
  EXPECT_EQ(std::count(writable.begin(), writable.end(), "/data"), 0);
}

TEST(MountPlan, ATreeThatIsAMountIsNotLookedUpByItsPath) {
  std::vector<GivenTree> trees;
  trees.push_back(some_tree("/data"));
  MountPlan plan;
  const std::vector<Step> steps = steps_with(trees, TreesBy::kMount, &plan);
  EXPECT_EQ(find(steps, StepKind::kTree, "data")->source, "");
}

TEST(MountPlan, TargetsInTheRootAreMadeBeforeItIsSealedAndOthersWhereTheyBelong) {
  std::vector<GivenTree> trees;
  trees.push_back(some_tree("/srv/a/b"));
  trees.push_back(some_tree("/workspace/c/d"));
  MountPlan plan;
  (void)steps_with(trees, TreesBy::kPath, &plan);
  const std::vector<Step> shared = decode(plan.shared);
  const std::size_t sealed = place_of(shared, StepKind::kSealRoot, "");
  for (const char* path : {"srv", "srv/a", "srv/a/b"}) {
    EXPECT_LT(place_of(shared, StepKind::kMountPoint, path), sealed) << path;
  }
  EXPECT_EQ(find(shared, StepKind::kMountPoint, "workspace/c"), nullptr);
  const std::vector<Step> own = decode(plan.own);
  EXPECT_LT(place_of(own, StepKind::kAttach, "workspace"),
            place_of(own, StepKind::kMountPoint, "workspace/c"));
  EXPECT_LT(place_of(own, StepKind::kMountPoint, "workspace/c/d"),
            place_of(own, StepKind::kTree, "workspace/c/d"));
}

TEST(MountPlan, WhatIsHiddenInATreeIsCoveredAfterItIsMounted) {
  std::vector<GivenTree> trees;
  trees.push_back(some_tree("/data"));
  trees[0].hidden = {{".env", GivenTree::Kind::kFile, ""},
                     {"a/.ssh", GivenTree::Kind::kFolder, ""}};
  MountPlan plan;
  const std::vector<Step> steps = steps_with(trees, TreesBy::kPath, &plan);
  const std::size_t mounted = place_of(steps, StepKind::kTree, "data");
  const Step* file = find(steps, StepKind::kMask, "data/.env");
  const Step* folder = find(steps, StepKind::kMask, "data/a/.ssh");
  ASSERT_TRUE(file != nullptr && folder != nullptr);
  EXPECT_TRUE(file->has(protocol::kStepIsFile));
  EXPECT_FALSE(folder->has(protocol::kStepIsFile));
  EXPECT_LT(mounted, place_of(steps, StepKind::kMask, "data/.env"));
  EXPECT_LT(mounted, place_of(steps, StepKind::kMask, "data/a/.ssh"));
}

TEST(MountPlan, NobodyLendsARootWithTrees) {
  std::vector<GivenTree> trees;
  trees.push_back(some_tree("/data"));
  MountPlan plan;
  (void)steps_with(trees, TreesBy::kPath, &plan);
  EXPECT_EQ(plan.nursing, MountPlan::Nursing::kImpossible);
  EXPECT_EQ(plan_of({}).nursing, MountPlan::Nursing::kPossible);
}

TEST(MountPlan, ThereAreAsManyTreesAsAMessageCarries) {
  std::vector<GivenTree> trees;
  for (std::size_t i = 0; i <= protocol::kMaxTrees; ++i) {
    trees.push_back(some_tree("/data" + std::to_string(i)));
  }
  EXPECT_FALSE(
      plan_mounts({}, some_host(), some_identity(), Lifetime::kOneShot, {trees, TreesBy::kPath})
          .ok());
}

TEST(MountPlan, DevicesAreTheSixHarmlessOnesByNumber) {
  const std::set<std::pair<std::string, std::uint64_t>> expected = {
      {"dev/null", makedev(1, 3)},   {"dev/zero", makedev(1, 5)},    {"dev/full", makedev(1, 7)},
      {"dev/random", makedev(1, 8)}, {"dev/urandom", makedev(1, 9)}, {"dev/tty", makedev(5, 0)}};
  each_plan([&](const policy::Spec&, const std::vector<Step>& steps) {
    std::set<std::pair<std::string, std::uint64_t>> devices;
    for (const Step& step : steps) {
      if (step.kind() == StepKind::kDevice) {
        EXPECT_EQ(step.source, "/" + step.path);
        devices.emplace(step.path, step.fields.size);
      }
    }
    EXPECT_EQ(devices, expected);
  });
}

TEST(MountPlan, EtcIsWrittenForTheSandboxsUser) {
  policy::Spec spec;
  spec.user = "worker";
  spec.hostname = "room";
  const std::vector<Step> steps = steps_of(spec);
  EXPECT_THAT(content_of(steps, StepKind::kFile, "etc/passwd"),
              HasSubstr("\nworker:x:1234:1235::/home/worker:/bin/bash\n"));
  EXPECT_THAT(content_of(steps, StepKind::kFile, "etc/group"), HasSubstr("\nworker:x:1235:\n"));
  EXPECT_EQ(content_of(steps, StepKind::kFile, "etc/hostname"), "room\n");
  EXPECT_EQ(content_of(steps, StepKind::kReplace, "etc/machine-id"), std::string(32, 'a') + "\n");
  EXPECT_EQ(content_of(steps, StepKind::kFile, "etc/resolv.conf"),
            "nameserver 198.18.0.1\noptions timeout:2\n");
  EXPECT_NE(find(steps, StepKind::kAttach, "home/worker"), nullptr);
}

TEST(MountPlan, NoNameMayBeKnownLaterWhereThereIsNoNetwork) {
  policy::Spec spec;
  const std::vector<Step> without = steps_of(spec);
  EXPECT_THAT(content_of(without, StepKind::kFile, "etc/nsswitch.conf"),
              HasSubstr("\nhosts: files dns files\n"));
  EXPECT_EQ(find(without, StepKind::kReplace, "etc/nsswitch.conf"), nullptr);
  spec.network.mode = policy::NetworkMode::kFull;
  EXPECT_THAT(content_of(steps_of(spec), StepKind::kReplace, "etc/nsswitch.conf"),
              HasSubstr("\nhosts: files dns\n"));
}

}  // namespace
}  // namespace carrel::native
