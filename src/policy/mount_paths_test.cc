#include "policy/mount_paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace carrel::policy {
namespace {

// R134
TEST(MountPaths, PrefixesAreByComponentAndTheRootHoldsEverything) {
  const struct {
    std::string_view root;
    std::string_view path;
    bool holds;
  } kTable[] = {
      {"/data", "/data", true},   {"/data", "/data/x", true},
      {"/data", "/data2", false}, {"/data", "/data-evil", false},
      {"/data", "/DATA", false},  {"/data/x", "/data", false},
      {"/", "/", true},           {"/", "/tmp", true},
      {"/", "/tmp/x", true},      {"/tmp", "/", false},
      {"/a/b", "/a/bc", false},   {"/a/b", "/a/b/c/d", true},
  };
  for (const auto& row : kTable) {
    EXPECT_EQ(path_holds(row.root, row.path), row.holds) << row.root << " " << row.path;
  }
}

TEST(MountPaths, FoldingLeavesNeitherDotsNorDoubledSlashes) {
  const struct {
    std::string_view path;
    std::string_view folded;
  } kTable[] = {
      {"/", "/"},
      {"/a/", "/a"},
      {"//a//b", "/a/b"},
      {"/a/./b/.", "/a/b"},
      {"/data/../etc", "/etc"},
      {"/../..", "/"},
      {"/a/../../b", "/b"},
      {"/a/...", "/a/..."},
  };
  for (const auto& row : kTable) {
    EXPECT_EQ(folded_path(row.path), row.folded) << row.path;
  }
  EXPECT_EQ(path_below("/", "a"), "/a");
  EXPECT_EQ(path_below("/x", "a/b"), "/x/a/b");
}

// R123: the names that are asked for, and the endings they are seen with
TEST(MountPaths, CredentialNamesAreKnown) {
  for (const std::string_view name : {".ssh",
                                      ".gnupg",
                                      ".gpg",
                                      ".aws",
                                      ".azure",
                                      ".gcloud",
                                      ".kube",
                                      ".docker",
                                      "credentials",
                                      ".env",
                                      ".netrc",
                                      ".npmrc",
                                      ".pypirc",
                                      "id_rsa",
                                      "id_ed25519",
                                      "private_key",
                                      ".secret",
                                      ".env.local",
                                      ".env.production",
                                      ".ENV",
                                      ".Ssh",
                                      "id_rsa.old",
                                      "id_ed25519_work",
                                      "id_ecdsa",
                                      ".secrets",
                                      ".git-credentials",
                                      "credentials.json",
                                      "private_key.pem"}) {
    EXPECT_TRUE(is_credential_name(name)) << name;
  }
  for (const std::string_view name :
       {"ssh", "env", ".environment", ".env.example", ".envoy", "credentials.py", "Credentials",
        "id_rsa2", "my_id_rsa", "private_keys.py", "secret", ".sshd", "docker", ".config", ""}) {
    EXPECT_FALSE(is_credential_name(name)) << name;
  }
  EXPECT_EQ(credential_in("/home/bob/.kube/config"), ".kube");
  EXPECT_EQ(credential_in("/srv/app/.env"), ".env");
  EXPECT_EQ(credential_in("/srv/app"), "");
}

// R121
TEST(MountPaths, ForbiddenPathsAreThoseOfTheSystemAndOfEveryHome) {
  const std::string homes[] = {"/home/bob", "/root", "/srv/people/ann"};
  const auto paths = forbidden_paths(homes);
  for (const std::string_view path : {"/etc/shadow",
                                      "/etc/passwd",
                                      "/etc/sudoers",
                                      "/proc",
                                      "/sys",
                                      "/dev",
                                      "/var/run/docker.sock",
                                      "/etc/ssh",
                                      "/boot",
                                      "/run",
                                      "/home/bob/.ssh",
                                      "/home/bob/.aws",
                                      "/home/bob/.gnupg",
                                      "/home/bob/.config",
                                      "/srv/people/ann/.ssh",
                                      "/srv/people/ann/.config",
                                      "/root/.ssh",
                                      "/root/.config",
                                      "/root/.bash_history",
                                      "/root/.local/share/carrel/secrets"}) {
    EXPECT_TRUE(std::any_of(paths.begin(), paths.end(), [&](const ForbiddenPath& row) {
      return row.path == path && row.reach == Reach::kBelowAndAbove;
    })) << path;
  }
  for (const std::string_view path : {"/home", "/root"}) {
    EXPECT_TRUE(std::any_of(paths.begin(), paths.end(), [&](const ForbiddenPath& row) {
      return row.path == path && row.reach == Reach::kAbove;
    })) << path;
  }
}

}  // namespace
}  // namespace carrel::policy
