#include "backends/docker/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sandbox/plan_test_support.h"

namespace carrel::docker {
namespace {

using protocol::MountStep;
using protocol::StepKind;
using sandbox::everything_exists;
using sandbox::plan_of;
using sandbox::step;
using testing::HasSubstr;

Result<Layout> layout_of(const std::vector<MountStep>& steps,
                         const std::vector<std::string>& trees = {}) {
  const std::string plan = plan_of(steps);
  sandbox::RoomRequest request;
  request.plan.own = plan;
  for (const std::string& path : trees) {
    sandbox::RoomRequest::Tree& tree = request.trees.emplace_back();
    tree.path = path;
  }
  return layout_for(request, 1234, 1235, everything_exists);
}

const Layout::Mount* mount_at(const Layout& layout, const std::string& target) {
  for (const Layout::Mount& mount : layout.mounts) {
    if (mount.target == target) {
      return &mount;
    }
  }
  return nullptr;
}

TEST(DockerLayout, TheRootIsAnArchiveOfWhatThePlanMakes) {
  MountStep file = step(StepKind::kFile, "etc/passwd", "root:x\n");
  file.mode = 0444;
  auto layout =
      layout_of({step(StepKind::kDirectory, "etc"), file, step(StepKind::kLink, "bin", "usr/bin"),
                 step(StepKind::kLink, "dev/fd", "/proc/self/fd")});
  ASSERT_TRUE(layout.ok());
  const std::string& tar = layout->image;
  ASSERT_EQ(tar.size(), 512U * (1 + 2 + 1 + 2));
  EXPECT_EQ(tar[156], '5');
  EXPECT_EQ(tar.substr(512, 10), "etc/passwd");
  EXPECT_EQ(tar.substr(1024, 7), "root:x\n");
  EXPECT_EQ(tar.substr(1536 + 157, 7), "usr/bin");
  EXPECT_EQ(tar.find("dev/fd"), std::string::npos) << "it has a /dev of its own";
}

TEST(DockerLayout, ADirectoryThatIsAskedForTwiceIsThereOnce) {
  auto layout =
      layout_of({step(StepKind::kDirectory, "etc"), step(StepKind::kFile, "etc/passwd", "root:x\n"),
                 step(StepKind::kDirectory, "etc")});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(layout->image.size(), 512U * (1 + 2 + 2));
}

TEST(DockerLayout, WhatAnEnginePutsIntoEtcIsCovered) {
  auto layout = layout_of({step(StepKind::kFile, "etc/hosts", "127.0.0.1 localhost\n")});
  ASSERT_TRUE(layout.ok());
  const Layout::Mount* mount = mount_at(layout.value(), "/etc/hosts");
  ASSERT_NE(mount, nullptr);
  EXPECT_TRUE(mount->made);
  EXPECT_FALSE(mount->writable);
  EXPECT_EQ(layout->files.at(0).content, "127.0.0.1 localhost\n");
}

TEST(DockerLayout, TreesAreTheHostsPathsAndOnlyWritableIfTheyAreToBe) {
  MountStep second = step(StepKind::kTree, "seen", "", protocol::kStepReadOnly);
  second.slot = 1;
  auto layout = layout_of({step(StepKind::kTree, "workspace"), second}, {"/srv/one", "/srv/two"});
  ASSERT_TRUE(layout.ok());
  EXPECT_EQ(mount_at(layout.value(), "/workspace")->source, "/srv/one");
  EXPECT_TRUE(mount_at(layout.value(), "/workspace")->writable);
  EXPECT_FALSE(mount_at(layout.value(), "/seen")->writable);
}

TEST(DockerLayout, MemoryHasItsSizeItsModeAndItsUser) {
  MountStep whole = step(StepKind::kTmpfs, "");
  whole.size = 4096;
  MountStep part = step(StepKind::kSubdirectory, "", "tmp");
  part.mode = 01777;
  MountStep shown = step(StepKind::kAttach, "tmp", "tmp", protocol::kStepNoExec);
  auto layout = layout_of({whole, part, shown});
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->memory.size(), 1U);
  EXPECT_EQ(layout->memory[0].target, "/tmp");
  EXPECT_EQ(layout->memory[0].options,
            "rw,nosuid,nodev,noexec,size=4096,mode=1777,uid=1234,gid=1235");
}

TEST(DockerLayout, WhatAnEngineCannotMakeIsRefused) {
  EXPECT_EQ(layout_of({step(StepKind::kOverlay, "usr", "/usr")}).error().code, Code::kUnsupported);
  EXPECT_EQ(layout_of({step(StepKind::kBind, "\xff", "/x")}).error().code, Code::kUnsupported);
  const std::string longest(120, 'x');
  EXPECT_EQ(layout_of({step(StepKind::kDirectory, longest)}).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace carrel::docker
