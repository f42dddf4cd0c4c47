#include "policy/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace carrel::policy {
namespace {

using testing::HasSubstr;

constexpr auto kRead = MountMode::kReadOnly;
constexpr auto kWrite = MountMode::kReadWrite;

const std::vector<std::string>& homes() {
  static const std::vector<std::string> homes = {"/home/me", "/home/bob", "/root",
                                                 "/srv/people/ann"};
  return homes;
}

// A folder at this place, on a host where no path is a link and everything is on one disk.
MountFacts folder(const std::string& path) {
  MountFacts facts;
  facts.asked = path;
  facts.kind = FileKind::kFolder;
  facts.real = {path, "8:1", path, "ext4"};
  for (const ForbiddenPath& forbidden : forbidden_paths(homes())) {
    facts.forbidden.push_back({forbidden, {forbidden.path, "8:1", forbidden.path, "ext4"}});
  }
  return facts;
}

MountFacts leading_to(const std::string& asked, const std::string& real) {
  MountFacts facts = folder(real);
  facts.asked = asked;
  return facts;
}

MountGrants lists(std::vector<std::string> read, std::vector<std::string> write = {}) {
  return {MountGrants::By::kLists, std::move(read), std::move(write)};
}

MountGrants everything() { return lists({"/"}, {"/"}); }

// R119
TEST(Mounts, EmptyListsRefuseEverything) {
  for (const std::string path : {"/data", "/home/me/proj", "/tmp"}) {
    const auto decision = decide_mount(lists({}), folder(path), kRead);
    EXPECT_FALSE(decision.allowed);
    EXPECT_EQ(decision.rule, MountRule::kNotAllowed);
    EXPECT_THAT(decision.reason, HasSubstr(path));
    EXPECT_EQ(decision.real_path, path);
  }
}

// R119, R120, R134
TEST(Mounts, ListsDecideByModeAndComponent) {
  const MountGrants grants = lists({"/data"}, {"/out"});
  const struct {
    std::string path;
    MountMode mode;
    MountRule rule;
  } kTable[] = {
      {"/data", kRead, MountRule::kReadList},       {"/data/x/y", kRead, MountRule::kReadList},
      {"/data", kWrite, MountRule::kNotWritable},   {"/data/x", kWrite, MountRule::kNotWritable},
      {"/out", kRead, MountRule::kWriteList},       {"/out/x", kWrite, MountRule::kWriteList},
      {"/data2", kRead, MountRule::kNotAllowed},    {"/data-evil", kRead, MountRule::kNotAllowed},
      {"/out2", kWrite, MountRule::kNotAllowed},    {"/DATA", kRead, MountRule::kNotAllowed},
      {"/srv", kWrite, MountRule::kAboveForbidden},
  };
  for (const auto& row : kTable) {
    const auto decision = decide_mount(grants, folder(row.path), row.mode);
    EXPECT_EQ(rule_name(decision.rule), rule_name(row.rule)) << row.path;
    EXPECT_EQ(decision.allowed,
              row.rule == MountRule::kReadList || row.rule == MountRule::kWriteList);
    if (decision.allowed) {
      EXPECT_EQ(decision.mode, row.mode);
    }
  }
}

// R134: "/" as a root admits what is below it, and the forbidden stays forbidden
TEST(Mounts, TheRootAsAListAdmitsWhatIsBelowIt) {
  EXPECT_TRUE(decide_mount(lists({"/"}), folder("/tmp"), kRead).allowed);
  EXPECT_TRUE(decide_mount(lists({"/"}), folder("/tmp/x"), kRead).allowed);
  EXPECT_FALSE(decide_mount(lists({"/"}), folder("/"), kRead).allowed);
  EXPECT_FALSE(decide_mount(lists({"/"}), folder("/etc/ssh"), kRead).allowed);
  EXPECT_FALSE(decide_mount(lists({"/"}), folder("/tmp"), kWrite).allowed);
}

// R121
TEST(Mounts, ForbiddenPathsAndEverythingBelowAreRefused) {
  for (const std::string path : {"/etc/shadow",
                                 "/etc/passwd",
                                 "/etc/sudoers",
                                 "/proc",
                                 "/sys",
                                 "/dev",
                                 "/var/run/docker.sock",
                                 "/home/me/.ssh",
                                 "/home/me/.aws",
                                 "/home/me/.gnupg",
                                 "/home/me/.config",
                                 "/home/bob/.ssh",
                                 "/home/bob/.config",
                                 "/srv/people/ann/.config",
                                 "/root/.ssh",
                                 "/root/.aws",
                                 "/root/.config",
                                 "/root/.docker",
                                 "/root/.bash_history",
                                 "/root/.bashrc",
                                 "/root/.local/share/carrel/secrets",
                                 "/root/.m2/settings.xml",
                                 "/home/bob/.python_history",
                                 "/home/bob/.claude.json",
                                 "/etc/ssh",
                                 "/boot",
                                 "/run"}) {
    for (const std::string& below : {path, path + "/x", path + "/x/y z"}) {
      for (const MountGrants& grants : {everything(), MountGrants{}}) {
        const auto decision = decide_mount(grants, folder(below), kRead);
        EXPECT_FALSE(decision.allowed) << below;
        EXPECT_EQ(decision.rule, MountRule::kForbidden) << below;
        EXPECT_THAT(decision.reason, HasSubstr("never mounted"));
      }
    }
  }
}

// R122
TEST(Mounts, EverythingThatContainsAForbiddenPathIsRefused) {
  for (const std::string path : {"/", "/etc", "/home", "/home/me", "/home/bob", "/var", "/var/lib",
                                 "/srv", "/srv/people", "/srv/people/ann", "/home/me/.local"}) {
    for (const MountGrants& grants : {everything(), MountGrants{}, lists({path}, {path})}) {
      const auto decision = decide_mount(grants, folder(path), kRead);
      EXPECT_FALSE(decision.allowed) << path;
      EXPECT_TRUE(decision.rule == MountRule::kAboveForbidden || path == "/home") << path;
    }
  }
  EXPECT_TRUE(decide_mount(everything(), folder("/home/me/proj"), kWrite).allowed);
  EXPECT_EQ(decide_mount(everything(), folder("/root"), kRead).rule, MountRule::kForbidden);
  EXPECT_TRUE(decide_mount(everything(), folder("/root/proj"), kWrite).allowed);
  EXPECT_TRUE(decide_mount(everything(), folder("/root/.m2/repository"), kRead).allowed);
  EXPECT_TRUE(decide_mount(everything(), folder("/home/media"), kWrite).allowed);
}

// R122, where a home is reached through a link or is not where passwd says
TEST(Mounts, ForbiddenPathsAreFollowedToWhereTheyLead) {
  MountFacts facts = folder("/disk/keys");
  facts.real.device.clear();
  const Location keys{"/disk/keys", "8:1", "/disk/keys", "ext4"};
  facts.forbidden = {{{"/home/me/.ssh", Reach::kBelowAndAbove}, keys}};
  EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kForbidden);
  facts.real.path = facts.asked = "/disk";
  EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kAboveForbidden);
}

// R127: a bind mount is another path to the same thing
TEST(Mounts, BindMountsOfTheForbiddenAreRefused) {
  const struct {
    std::string on_device;
    std::string device;
    MountRule rule;
  } kTable[] = {
      {"/etc", "8:1", MountRule::kAboveForbidden},
      {"/etc/ssh/keys", "8:1", MountRule::kForbidden},
      {"/home/bob", "8:1", MountRule::kAboveForbidden},
      {"/home/bob/.config/x", "8:1", MountRule::kForbidden},
      {"/", "8:1", MountRule::kAboveForbidden},
      {"/etc", "8:2", MountRule::kWriteList},
      {"/srv2", "8:1", MountRule::kWriteList},
  };
  for (const auto& row : kTable) {
    MountFacts facts = folder("/mnt/x");
    facts.real.path_on_device = row.on_device;
    facts.real.device = row.device;
    EXPECT_EQ(rule_name(decide_mount(everything(), facts, kRead).rule), rule_name(row.rule))
        << row.on_device;
  }
}

TEST(Mounts, TheKernelsFileSystemsAreRefusedWhereverTheyAre) {
  for (const std::string type : {"proc", "sysfs", "devtmpfs", "cgroup2", "debugfs", "autofs"}) {
    MountFacts facts = folder("/mnt/x");
    facts.real.device = "0:22";
    facts.real.file_system = type;
    EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kForbidden) << type;
  }
}

// R123
TEST(Mounts, CredentialNamesAreRefusedAnywhereInThePath) {
  for (const std::string path :
       {"/data/.kube", "/data/.kube/cache", "/data/.env", "/srv2/credentials", "/data/id_rsa",
        "/data/x/.docker/y", "/opt/.secret", "/data/.ENV", "/home/other/.netrc"}) {
    for (const MountGrants& grants : {everything(), MountGrants{}, lists({path})}) {
      EXPECT_EQ(decide_mount(grants, folder(path), kRead).rule, MountRule::kCredentialName) << path;
    }
  }
  // A name of credentials that is a link to somewhere else.
  EXPECT_EQ(decide_mount(everything(), leading_to("/data/.env", "/data/prod"), kRead).rule,
            MountRule::kCredentialName);
}

// R124
TEST(Mounts, WhatWasNoticedInTheTreeIsHidden) {
  MountFacts facts = folder("/data");
  facts.noticed = {{"b/.env", FileKind::kFile, {1, 2}, Noticed::kCredentialName},
                   {"a/.ssh", FileKind::kFolder, {1, 3}, Noticed::kCredentialName},
                   {"a/.ssh/agent", FileKind::kSocket, {1, 4}, Noticed::kChannel},
                   {"a/.ssh-old", FileKind::kSocket, {1, 5}, Noticed::kChannel},
                   {"shadow", FileKind::kFile, {1, 6}, Noticed::kForbiddenLink}};
  for (const MountMode mode : {kRead, kWrite}) {
    const auto decision = decide_mount(everything(), facts, mode);
    ASSERT_TRUE(decision.allowed);
    ASSERT_EQ(decision.hidden.size(), 4U);
    EXPECT_EQ(decision.hidden[0].path, "a/.ssh");
    EXPECT_EQ(decision.hidden[0].kind, FileKind::kFolder);
    EXPECT_EQ(decision.hidden[0].id, (FileId{1, 3}));
    EXPECT_EQ(decision.hidden[1].path, "a/.ssh-old");
    EXPECT_EQ(decision.hidden[2].path, "b/.env");
    EXPECT_EQ(decision.hidden[3].path, "shadow");
  }
}

// R124, R127
TEST(Mounts, MountsOfTheForbiddenInTheTreeAreHidden) {
  MountFacts facts = folder("/data");
  const auto add = [&](const char* path, const char* device, const char* on_device,
                       const char* type) {
    facts.mounts.push_back({path,
                            FileKind::kFolder,
                            {9, facts.mounts.size()},
                            {"/data/" + std::string(path), device, on_device, type}});
  };
  add("etc", "8:1", "/etc", "ext4");
  add("keys", "8:1", "/home/bob/.config", "ext4");
  add("proc", "0:4", "/", "proc");
  add("scratch", "0:50", "/", "tmpfs");
  add("other", "8:2", "/etc", "ext4");
  const auto decision = decide_mount(everything(), facts, kRead);
  ASSERT_TRUE(decision.allowed);
  ASSERT_EQ(decision.hidden.size(), 3U);
  EXPECT_EQ(decision.hidden[0].path, "etc");
  EXPECT_EQ(decision.hidden[1].path, "keys");
  EXPECT_EQ(decision.hidden[2].path, "proc");
  EXPECT_EQ(decision.hidden[2].why, Noticed::kForbiddenMount);
}

TEST(Mounts, TreesThatCouldNotBeExaminedAreRefused) {
  for (const Examined examined : {Examined::kTooMany, Examined::kTooDeep}) {
    MountFacts facts = folder("/data");
    facts.examined = examined;
    EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kTooLarge);
  }
  MountFacts facts = folder("/data");
  for (std::size_t i = 0; i <= kMostHidden; ++i) {
    facts.noticed.push_back(
        {"s" + std::to_string(i), FileKind::kSocket, {1, i}, Noticed::kChannel});
  }
  EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kTooLarge);
  facts.noticed.pop_back();
  EXPECT_TRUE(decide_mount(everything(), facts, kRead).allowed);
}

// R125
TEST(Mounts, LinksThatLeaveWhatIsAllowedAreRefused) {
  const MountGrants grants = lists({"/data"});
  EXPECT_EQ(decide_mount(grants, leading_to("/data/link", "/opt/x"), kRead).rule, MountRule::kLink);
  EXPECT_EQ(decide_mount(grants, leading_to("/data/link", "/etc"), kRead).rule,
            MountRule::kAboveForbidden);
  EXPECT_EQ(decide_mount(grants, leading_to("/data", "/opt/data"), kRead).rule, MountRule::kLink);
  EXPECT_TRUE(decide_mount(grants, leading_to("/data/link", "/data/x"), kRead).allowed);
  EXPECT_TRUE(decide_mount(grants, leading_to("/opt/link", "/data/x"), kRead).allowed);
  EXPECT_FALSE(decide_mount(grants, leading_to("/opt/link", "/opt/x"), kRead).allowed);
}

// R125: the person at the terminal grants what is written, not where it leads
TEST(Mounts, TypedPathsGrantThemselvesAndNothingElse) {
  const MountGrants typed;
  EXPECT_TRUE(decide_mount(typed, folder("/data"), kRead).allowed);
  const auto writable = decide_mount(typed, folder("/data"), kWrite);
  EXPECT_TRUE(writable.allowed);
  EXPECT_EQ(writable.mode, kWrite);
  EXPECT_EQ(writable.rule, MountRule::kCommandLine);
  const auto link = decide_mount(typed, leading_to("/data/link", "/opt/x"), kRead);
  EXPECT_EQ(link.rule, MountRule::kLink);
  EXPECT_THAT(link.reason, HasSubstr("/opt/x"));
  EXPECT_EQ(link.real_path, "/opt/x");
}

// R129
TEST(Mounts, WhatIsNotThereIsRefused) {
  MountFacts facts = folder("/data/none");
  facts.kind = FileKind::kMissing;
  facts.real = {};
  const auto decision = decide_mount(everything(), facts, kRead);
  EXPECT_EQ(decision.rule, MountRule::kMissing);
  EXPECT_EQ(decision.real_path, "");
  EXPECT_THAT(decision.reason, HasSubstr("'/data/none' does not exist"));
  facts.asked = "/root/.ssh/none";
  EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kForbidden);
}

TEST(Mounts, OnlyFoldersAndFilesAreMounted) {
  const struct {
    FileKind kind;
    MountRule rule;
  } kTable[] = {
      {FileKind::kFolder, MountRule::kWriteList},  {FileKind::kFile, MountRule::kWriteList},
      {FileKind::kSocket, MountRule::kKind},       {FileKind::kPipe, MountRule::kKind},
      {FileKind::kDevice, MountRule::kKind},       {FileKind::kMaze, MountRule::kLink},
      {FileKind::kDenied, MountRule::kUnreadable},
  };
  for (const auto& row : kTable) {
    MountFacts facts = folder("/data");
    facts.kind = row.kind;
    EXPECT_EQ(rule_name(decide_mount(everything(), facts, kRead).rule), rule_name(row.rule));
  }
}

// B-10
TEST(Mounts, AFileThatIsAlsoAForbiddenOneIsRefused) {
  MountFacts facts = folder("/data/f");
  facts.kind = FileKind::kFile;
  facts.noticed = {{"", FileKind::kFile, {1, 1}, Noticed::kForbiddenLink}};
  EXPECT_EQ(decide_mount(everything(), facts, kRead).rule, MountRule::kForbidden);
}

// R136, and the program itself
TEST(Mounts, OwnPlacesAreForbiddenAsFarAsTheyReach) {
  const auto rule = [](const char* path, Reach reach, MountMode mode) {
    MountFacts facts = folder(path);
    facts.forbidden = {{{"/opt/own", reach}, {"/opt/own", "8:1", "/opt/own", "ext4"}}};
    return rule_name(decide_mount(everything(), facts, mode).rule);
  };
  const auto forbidden = rule_name(MountRule::kForbidden);
  const auto above = rule_name(MountRule::kAboveForbidden);
  const auto allowed = rule_name(MountRule::kWriteList);
  EXPECT_EQ(rule("/opt/own", Reach::kAbove, kRead), forbidden);
  EXPECT_EQ(rule("/opt", Reach::kAbove, kRead), above);
  EXPECT_EQ(rule("/opt/own/x", Reach::kAbove, kWrite), allowed);
  EXPECT_EQ(rule("/opt/own", Reach::kAboveIfWritable, kRead), forbidden);
  EXPECT_EQ(rule("/opt", Reach::kAboveIfWritable, kRead), allowed);
  EXPECT_EQ(rule("/opt", Reach::kAboveIfWritable, kWrite), above);
  EXPECT_EQ(rule("/opt/own/x", Reach::kBelowAndAbove, kRead), forbidden);
}

// R130, R137
TEST(Mounts, ARefusalIsAnErrorThatNamesPathAndRule) {
  const auto decision = decide_mount(lists({}), folder("/data"), kRead);
  const Error error = mount_error("/data", decision);
  EXPECT_EQ(error.code, Code::kDenied);
  EXPECT_THAT(error.to_string(), HasSubstr("'/data'"));
  EXPECT_THAT(error.to_string(), HasSubstr("not_allowed"));
}

}  // namespace
}  // namespace carrel::policy
