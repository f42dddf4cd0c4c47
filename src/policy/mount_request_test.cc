#include "policy/mount_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace carrel::policy {
namespace {

// R132: a name is data, whatever is in it
TEST(MountRequest, SourcesAreData) {
  const struct {
    std::string text;
    std::string source;
    std::string target;
    MountMode mode;
  } kTable[] = {
      {"/srv:/data", "/srv", "/data", MountMode::kReadOnly},
      {"/srv:/data:ro", "/srv", "/data", MountMode::kReadOnly},
      {"/srv:/data:rw", "/srv", "/data", MountMode::kReadWrite},
      {"/srv/a:b,ro:/data", "/srv/a:b,ro", "/data", MountMode::kReadOnly},
      {"/srv/x:rw:/data", "/srv/x:rw", "/data", MountMode::kReadOnly},
      {"/srv/a:/b:/data:rw", "/srv/a:/b", "/data", MountMode::kReadWrite},
      {"-v:/data", "-v", "/data", MountMode::kReadOnly},
      {"/a b\nc:/data", "/a b\nc", "/data", MountMode::kReadOnly},
      {"/$(id);'\"\\:/data", "/$(id);'\"\\", "/data", MountMode::kReadOnly},
      {"/\xff\xfe:/data", "/\xff\xfe", "/data", MountMode::kReadOnly},
      {".:/workspace:rw", ".", "/workspace", MountMode::kReadWrite},
  };
  for (const auto& row : kTable) {
    auto mount = parse_mount({"--mount", row.text});
    ASSERT_TRUE(mount.ok()) << row.text << ": " << mount.error().to_string();
    EXPECT_EQ(mount->source, row.source);
    EXPECT_EQ(mount->target, row.target);
    EXPECT_EQ(mount->mode, row.mode) << row.text;
  }
}

// R133, R135
TEST(MountRequest, WhatIsNotAMountIsRefused) {
  using namespace std::string_literals;
  for (const std::string& text :
       std::vector<std::string>{"", ":", "/srv", ":/data", "/data:rw", "/srv:rw", "/srv:/data:RW",
                                "/srv:/data:false", "/srv:/data:", "~:/data", "~/x:/data",
                                "/a\0b:/data"s, "/srv:data", "/srv:/data:rw:ro"}) {
    EXPECT_FALSE(parse_mount({"--mount", text}).ok()) << text;
  }
}

// R131
TEST(MountRequest, BadTargetsAreRefused) {
  for (const std::string_view text : {"",
                                      "data",
                                      "./data",
                                      "/",
                                      "//",
                                      "/.",
                                      "/..",
                                      "/data/..",
                                      "/data/../etc",
                                      "/data/./x",
                                      "/data//x",
                                      "/data/",
                                      "/a:b",
                                      "/a\nb",
                                      "/a\x7f",
                                      "/a\x1b[0m",
                                      "/proc",
                                      "/proc/self",
                                      "/sys/fs/cgroup",
                                      "/dev",
                                      "/dev/shm",
                                      "/etc",
                                      "/etc/passwd",
                                      "/etc/passwd/x",
                                      "/etc/group",
                                      "/etc/hosts",
                                      "/etc/hostname",
                                      "/etc/resolv.conf",
                                      "/etc/machine-id",
                                      "/etc/nsswitch.conf",
                                      "/etc/mtab",
                                      "/etc/os-release",
                                      "/usr",
                                      "/usr/local",
                                      "/bin",
                                      "/sbin",
                                      "/lib",
                                      "/lib64",
                                      "/lib64/x",
                                      "/boot",
                                      "/run",
                                      "/run/x",
                                      "/var",
                                      "/var/run",
                                      "/workspace/code",
                                      "/workspace/code/x",
                                      "/\xff"}) {
    EXPECT_FALSE(check_mount_target({"--mount", text}).ok()) << text;
  }
  for (const std::string_view text :
       {"/data", "/workspace", "/workspace/data", "/workspace/codes", "/mnt/a b", "/usr2",
        "/home/agent/x", "/opt/tool", "/var/lib/x", "/processes", "/...", "/a,b", "/etc/x",
        "/etc/app/conf.d", "/etc/maven/settings.xml", "/etc/passwd.d", "/etc/ssl/certs"}) {
    EXPECT_TRUE(check_mount_target({"--mount", text}).ok()) << text;
  }
}

// R131: duplicates, and one inside the other
TEST(MountRequest, TargetsDoNotOverlap) {
  const auto with = [](const char* one, const char* two) {
    return check_mounts({{"/a", one, MountMode::kReadOnly}, {"/b", two, MountMode::kReadOnly}});
  };
  EXPECT_TRUE(with("/data", "/data2").ok());
  EXPECT_FALSE(with("/data", "/data").ok());
  EXPECT_FALSE(with("/data", "/data/x").ok());
  EXPECT_FALSE(with("/data/x", "/data").ok());
  EXPECT_FALSE(check_mounts({{"", "/data", MountMode::kReadOnly}}).ok());
  EXPECT_FALSE(check_mounts({{"/a", "/etc", MountMode::kReadOnly}}).ok());
}

// R135
TEST(MountRequest, RelativeSourcesAreBelowTheCurrentFolderAndTildesAreRefused) {
  EXPECT_EQ(absolute_source({"PATH", "x/y"}, "/cwd").value(), "/cwd/x/y");
  EXPECT_EQ(absolute_source({"PATH", "-x"}, "/").value(), "/-x");
  EXPECT_EQ(absolute_source({"PATH", "/x"}, "/cwd").value(), "/x");
  EXPECT_EQ(absolute_source({"PATH", "../x"}, "/cwd").value(), "/cwd/../x");
  EXPECT_FALSE(absolute_source({"PATH", ""}, "/cwd").ok());
  EXPECT_FALSE(absolute_source({"PATH", "~"}, "/cwd").ok());
  EXPECT_FALSE(absolute_source({"PATH", "~/x"}, "/cwd").ok());
  EXPECT_TRUE(absolute_source({"PATH", "~bob"}, "/cwd").ok());
}

// R135
TEST(MountRequest, AllowedPathsAreAbsoluteAndNotEmpty) {
  EXPECT_EQ(parse_allowed_path({"allowed_read_paths", "/data//x/"}).value(), "/data/x");
  EXPECT_EQ(parse_allowed_path({"allowed_read_paths", "/"}).value(), "/");
  for (const std::string_view text : {"", "~", "~/x", "x", ".", "./x", "..", "/a/../b", "/a\n"}) {
    EXPECT_FALSE(parse_allowed_path({"allowed_read_paths", text}).ok()) << text;
  }
}

}  // namespace
}  // namespace carrel::policy
