#include "backends/bubblewrap/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sandbox/plan_test_support.h"

namespace carrel::bubblewrap {
namespace {

using protocol::MountStep;
using protocol::StepKind;
using testing::IsSubsetOf;
using Words = std::vector<std::string>;

using sandbox::everything_exists;
using sandbox::nothing_exists;
using sandbox::plan_of;
using sandbox::step;

// What the steps become, without what every sandbox has.
Result<Arguments> translate(const std::vector<MountStep>& steps, Exists exists = everything_exists,
                            const Words& sources = {}) {
  const std::string plan = plan_of(steps);
  sandbox::RoomRequest request;
  request.hostname = "h";
  request.uid = 7;
  request.gid = 8;
  request.plan.own = plan;
  return arguments_for(request, sources, exists);
}

bool has_run(const Words& words, const Words& run) {
  return std::search(words.begin(), words.end(), run.begin(), run.end()) != words.end();
}

TEST(BubblewrapArguments, EveryNamespaceAndTheFilterAreAlwaysThere) {
  auto made = translate({});
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(Words({"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                     "--unshare-net", "--disable-userns", "--as-pid-1", "--clearenv"}),
              IsSubsetOf(made->words));
  EXPECT_TRUE(has_run(made->words, {"--seccomp", std::to_string(kFilter)}));
  EXPECT_TRUE(has_run(made->words, {"--uid", "7", "--gid", "8", "--hostname", "h"}));
}

TEST(BubblewrapArguments, StepsBecomeItsWords) {
  MountStep folder = step(StepKind::kDirectory, "root");
  folder.mode = 0700;
  MountStep size = step(StepKind::kTmpfs, "x");
  size.slot = 1;
  size.size = 4096;
  MountStep mode = step(StepKind::kSubdirectory, "", "tmp");
  mode.slot = 1;
  mode.mode = 01777;
  MountStep attach = step(StepKind::kAttach, "tmp", "tmp");
  attach.slot = 1;
  MountStep tree = step(StepKind::kTree, "data", "/there");
  tree.slot = 1;
  MountStep read_only = step(StepKind::kTree, "etc/x", "/where", protocol::kStepReadOnly);
  auto made = translate({folder, size, mode, attach, step(StepKind::kLink, "bin", "usr/bin"),
                         step(StepKind::kBind, "usr", "/usr", protocol::kStepReadOnly),
                         step(StepKind::kBind, "etc/ssl", "/etc/ssl",
                              protocol::kStepReadOnly | protocol::kStepOptional),
                         tree, read_only, step(StepKind::kSealRoot, "")},
                        everything_exists, {"/first", "/second"});
  ASSERT_TRUE(made.ok());
  for (const Words& run :
       {Words{"--perms", "0700", "--dir", "/root"},
        Words{"--perms", "1777", "--size", "4096", "--tmpfs", "/tmp"},
        Words{"--symlink", "usr/bin", "/bin"}, Words{"--ro-bind", "/usr", "/usr"},
        Words{"--ro-bind-try", "/etc/ssl", "/etc/ssl"}, Words{"--bind", "/second", "/data"},
        Words{"--ro-bind", "/first", "/etc/x"},
        Words{"--remount-ro", "/dev", "--remount-ro", "/"}}) {
    EXPECT_TRUE(has_run(made->words, run)) << testing::PrintToString(run);
  }
}

TEST(BubblewrapArguments, ContentsTravelAsDescriptors) {
  auto made =
      translate({step(StepKind::kFile, "etc/passwd", "text"),
                 step(StepKind::kReplace, "etc/machine-id", "id"),
                 step(StepKind::kMask, "proc/keys", "etc/machine-id", protocol::kStepIsFile)});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->data, Words({"text", "id", ""}));
  EXPECT_TRUE(has_run(made->words, {"--ro-bind-data", std::to_string(kData + 2), "/proc/keys"}));
}

TEST(BubblewrapArguments, WhatThisKernelsProcLacksIsNotHidden) {
  const std::vector<MountStep> steps = {
      step(StepKind::kMask, "proc/keys", "etc/machine-id", protocol::kStepIsFile),
      step(StepKind::kMask, "proc/bus", "run"), step(StepKind::kReplace, "proc/stat", "x"),
      step(StepKind::kMask, "data/secret", "run")};
  auto made = translate(steps, nothing_exists);
  ASSERT_TRUE(made.ok());
  for (const char* path : {"/proc/keys", "/proc/bus", "/proc/stat"}) {
    EXPECT_EQ(std::count(made->words.begin(), made->words.end(), path), 0) << path;
  }
  EXPECT_TRUE(has_run(made->words, {"--tmpfs", "/data/secret", "--remount-ro", "/data/secret"}));
}

TEST(BubblewrapArguments, WhatItCannotMakeIsRefused) {
  auto made = translate({step(StepKind::kOverlay, "usr", "/usr")});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::kUnsupported);
  EXPECT_FALSE(translate({step(StepKind::kDevice, "elsewhere/null", "/dev/null")}).ok());
}

}  // namespace
}  // namespace carrel::bubblewrap
