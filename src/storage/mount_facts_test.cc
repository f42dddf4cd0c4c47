#include "storage/mount_facts.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"

namespace carrel::storage {
namespace {

using policy::FileKind;
using policy::MountMode;
using policy::MountRule;
using policy::Noticed;
using policy::Reach;
using testing::HasSubstr;

// A folder with `data`, which is allowed, and `secret`, which is forbidden.
class MountFacts : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "carrel-mounts-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    char* real = ::realpath(name.c_str(), nullptr);
    root_ = real;
    std::free(real);
    folder("data");
    folder("secret");
    file("secret/key");
  }
  void TearDown() override { EXPECT_TRUE(remove_tree_at(AT_FDCWD, root_).ok()); }

  [[nodiscard]] std::string path(const std::string& name) const { return root_ + "/" + name; }
  void folder(const std::string& name) { ASSERT_EQ(::mkdir(path(name).c_str(), 0755), 0) << name; }
  void file(const std::string& name) {
    ASSERT_TRUE(open_at(AT_FDCWD, path(name), O_CREAT | O_EXCL | O_WRONLY, 0644).ok()) << name;
  }
  void link(const std::string& name, const std::string& text) {
    ASSERT_EQ(::symlink(text.c_str(), path(name).c_str()), 0) << name;
  }

  [[nodiscard]] MountJudge judge() const {
    auto opened = MountJudge::open({{path("secret"), Reach::kBelowAndAbove}});
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    return std::move(opened.value());
  }
  [[nodiscard]] policy::MountGrants data() const {
    return {policy::MountGrants::By::kLists, {}, {path("data")}};
  }
  [[nodiscard]] policy::MountDecision decide(const std::string& source,
                                             const WalkLimits& limits = {}) const {
    auto judged = judge().judge(data(), {source, MountMode::kReadOnly}, limits);
    EXPECT_TRUE(judged.ok()) << judged.error().to_string();
    return judged.ok() ? judged->decision : policy::MountDecision{};
  }
  [[nodiscard]] std::string rule(const std::string& name) const {
    return std::string(policy::rule_name(decide(path(name)).rule));
  }

  std::string root_;
};

// Runs `what` in a process with mounts of its own, as the caller or as root of a user namespace.
// False if that cannot be had here.
bool with_own_mounts(const std::function<void()>& what) {
  constexpr int kNoNamespaces = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    const uid_t uid = ::geteuid();
    const gid_t gid = ::getegid();
    if (::unshare(CLONE_NEWNS | (uid == 0 ? 0 : CLONE_NEWUSER)) != 0) {
      ::_exit(kNoNamespaces);
    }
    if (uid != 0) {
      const bool mapped =
          write_value_at(AT_FDCWD, "/proc/self/setgroups", "deny").ok() &&
          write_value_at(AT_FDCWD, "/proc/self/uid_map", "0 " + std::to_string(uid) + " 1").ok() &&
          write_value_at(AT_FDCWD, "/proc/self/gid_map", "0 " + std::to_string(gid) + " 1").ok();
      if (!mapped) {
        ::_exit(kNoNamespaces);
      }
    }
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      ::_exit(kNoNamespaces);
    }
    what();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespaces) {
    return false;
  }
  EXPECT_EQ(status, 0);
  return true;
}

void bind_mount(const std::string& from, const std::string& to) {
  ASSERT_EQ(::mount(from.c_str(), to.c_str(), nullptr, MS_BIND, nullptr), 0) << to;
}

TEST_F(MountFacts, WhatIsBelowAnAllowedPathIsGranted) {
  folder("data/a");
  file("data/a/f");
  EXPECT_EQ(rule("data"), "allowed_write_paths");
  EXPECT_EQ(rule("data/a"), "allowed_write_paths");
  EXPECT_EQ(rule("data/a/f"), "allowed_write_paths");
  EXPECT_EQ(rule("data/a/../../data/./a/"), "allowed_write_paths");
  EXPECT_EQ(decide(path("data/a")).real_path, path("data/a"));
}

// R129
TEST_F(MountFacts, MissingPathsAreRefusedAndNotCreated) {
  EXPECT_EQ(rule("data/none"), "missing");
  EXPECT_EQ(rule("data/none/below"), "missing");
  struct stat info{};
  EXPECT_NE(::lstat(path("data/none").c_str(), &info), 0);
}

TEST_F(MountFacts, ForbiddenPathsAreRefusedByWhereverTheyAreReached) {
  link("data/link", "../secret");
  link("alias", "secret");
  EXPECT_EQ(rule("secret"), "forbidden");
  EXPECT_EQ(rule("secret/key"), "forbidden");
  EXPECT_EQ(rule("data/link"), "forbidden");
  EXPECT_EQ(rule("data/link/key"), "forbidden");
  EXPECT_EQ(rule("data/../secret"), "forbidden");
  EXPECT_EQ(rule("alias/none"), "missing");
  EXPECT_EQ(rule(""), "above_forbidden");
  EXPECT_EQ(policy::rule_name(decide("/").rule), "above_forbidden");
}

// R125
TEST_F(MountFacts, LinksAreResolvedBeforeTheCheck) {
  folder("other");
  folder("data/in");
  link("data/out", "../other");
  link("data/within", "in");
  link("data/circle", "circle");
  EXPECT_EQ(rule("data/out"), "link");
  EXPECT_EQ(decide(path("data/out")).real_path, path("other"));
  EXPECT_EQ(rule("data/within"), "allowed_write_paths");
  EXPECT_EQ(rule("data/circle"), "link");
  EXPECT_EQ(rule("other"), "not_allowed");
}

// B03
TEST_F(MountFacts, TheMagicLinksOfProcAreNotFollowed) {
  link("data/magic", "/proc/self/cwd");
  EXPECT_EQ(rule("data/magic"), "link");
  EXPECT_EQ(policy::rule_name(decide("/proc/self/root" + path("data")).rule), "link");
}

// R132
TEST_F(MountFacts, NamesAreData) {
  for (const std::string name : {"data/a:b,ro", "data/a b", "data/-v", "data/a\nb", "data/$(id)",
                                 "data/\xff\xfe", "data/x (deleted)", "data/back\\slash"}) {
    folder(name);
    const auto decision = decide(path(name));
    EXPECT_TRUE(decision.allowed) << name << decision.reason;
    EXPECT_EQ(decision.real_path, path(name));
    EXPECT_EQ(decision.reason.find('\n'), std::string::npos);
  }
}

// R124
TEST_F(MountFacts, CredentialsInTheTreeAreFoundAndHidden) {
  folder("data/proj");
  folder("data/proj/.aws");
  file("data/proj/.aws/config");
  file("data/proj/.env");
  file("data/proj/.env.example");
  file("data/proj/main.py");
  const auto decision = decide(path("data"));
  ASSERT_TRUE(decision.allowed);
  ASSERT_EQ(decision.hidden.size(), 2U);
  EXPECT_EQ(decision.hidden[0].path, "proj/.aws");
  EXPECT_EQ(decision.hidden[0].kind, FileKind::kFolder);
  EXPECT_EQ(decision.hidden[1].path, "proj/.env");
  EXPECT_EQ(decision.hidden[1].kind, FileKind::kFile);
  struct stat info{};
  ASSERT_EQ(::stat(path("data/proj/.env").c_str(), &info), 0);
  EXPECT_EQ(decision.hidden[1].id, (policy::FileId{info.st_dev, info.st_ino}));
}

// R127, B-10
TEST_F(MountFacts, HardLinksToForbiddenFilesAreFound) {
  ASSERT_EQ(::link(path("secret/key").c_str(), path("data/innocent").c_str()), 0);
  file("data/one");
  ASSERT_EQ(::link(path("data/one").c_str(), path("data/two").c_str()), 0);
  folder("secret/.cache");
  ASSERT_EQ(::link(path("data/one").c_str(), path("secret/.cache/one").c_str()), 0);
  const auto decision = decide(path("data"));
  ASSERT_TRUE(decision.allowed);
  ASSERT_EQ(decision.hidden.size(), 1U);
  EXPECT_EQ(decision.hidden[0].path, "innocent");
  EXPECT_EQ(decision.hidden[0].why, Noticed::kForbiddenLink);
  EXPECT_EQ(rule("data/innocent"), "forbidden");
  EXPECT_EQ(rule("data/one"), "allowed_write_paths");
}

// R127
TEST_F(MountFacts, SocketsAndPipesAreHidden) {
  ASSERT_EQ(::mkfifo(path("data/pipe").c_str(), 0600), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path("data/sock").copy(address.sun_path, sizeof address.sun_path - 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const auto decision = decide(path("data"));
  ASSERT_EQ(decision.hidden.size(), 2U);
  EXPECT_EQ(decision.hidden[0].path, "pipe");
  EXPECT_EQ(decision.hidden[1].path, "sock");
  EXPECT_EQ(decision.hidden[1].why, Noticed::kChannel);
  EXPECT_EQ(rule("data/sock"), "kind");
  EXPECT_EQ(rule("data/pipe"), "kind");
}

TEST_F(MountFacts, TreesBeyondTheLimitsAreRefused) {
  folder("data/1");
  folder("data/1/2");
  folder("data/1/2/3");
  EXPECT_TRUE(decide(path("data"), {.entries = 3, .depth = 3}).allowed);
  EXPECT_EQ(decide(path("data"), {.entries = 2, .depth = 3}).rule, MountRule::kTooLarge);
  EXPECT_EQ(decide(path("data"), {.entries = 3, .depth = 2}).rule, MountRule::kTooLarge);
}

TEST_F(MountFacts, LinksInTheTreeAreNotFollowed) {
  link("data/up", "..");
  link("data/root", "/");
  link("data/.env", "/etc/passwd");
  const auto decision = decide(path("data"), {.entries = 3, .depth = 1});
  EXPECT_TRUE(decision.allowed) << decision.reason;
  EXPECT_TRUE(decision.hidden.empty());
}

TEST_F(MountFacts, FoldersThatCannotBeReadAreHidden) {
  constexpr uid_t kNobody = 65534;
  folder("data/closed");
  folder("data/unsearchable");
  file("data/unsearchable/f");
  ASSERT_EQ(::chmod(path("data/closed").c_str(), 0), 0);
  ASSERT_EQ(::chmod(path("data/unsearchable").c_str(), 0444), 0);
  ASSERT_EQ(::chmod(root_.c_str(), 0755), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) {
      ::_exit(2);
    }
    const auto decision = decide(path("data"));
    EXPECT_EQ(decision.hidden.size(), 2U);
    for (const policy::Entry& entry : decision.hidden) {
      EXPECT_EQ(entry.why, Noticed::kUnreadable);
      EXPECT_NE(entry.id, policy::FileId{});
    }
    EXPECT_EQ(rule("data/closed"), "unreadable");
    EXPECT_EQ(rule("data/closed/x"), "unreadable");
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_EQ(::chmod(path("data/closed").c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path("data/unsearchable").c_str(), 0755), 0);
}

// R127
TEST_F(MountFacts, BindMountsAreSeenThrough) {
  folder("data/bound");
  folder("data/proc");
  folder("data/tmpfs");
  folder("data/twice");
  folder("data/again");
  folder("secret/deep");
  const bool tried = with_own_mounts([&] {
    bind_mount(path("secret/deep"), path("data/bound"));
    EXPECT_EQ(rule("data/bound"), "forbidden");
    ASSERT_EQ(::mount("none", path("data/tmpfs").c_str(), "tmpfs", 0, nullptr), 0);
    file("data/tmpfs/.env");
    const auto decision = decide(path("data"));
    EXPECT_TRUE(decision.allowed);
    ASSERT_EQ(decision.hidden.size(), 2U);
    EXPECT_EQ(decision.hidden[0].path, "bound");
    EXPECT_EQ(decision.hidden[0].why, Noticed::kForbiddenMount);
    EXPECT_EQ(decision.hidden[1].path, "tmpfs/.env");
    // One name of a forbidden file, seen twice.
    ASSERT_EQ(::link(path("secret/key").c_str(), path("data/twice/innocent").c_str()), 0);
    bind_mount(path("data/twice"), path("data/again"));
    EXPECT_EQ(decide(path("data")).hidden.size(), 4U);
    // The parent of what is forbidden, by another path.
    bind_mount(root_, path("data/proc"));
    EXPECT_EQ(rule("data/proc"), "above_forbidden");
    EXPECT_EQ(rule("data/proc/secret"), "forbidden");
  });
  if (!tried) {
    GTEST_SKIP() << "no mount namespace can be made here";
  }
}

// R126: what is granted is the descriptor, so that what takes the path's place is not mounted
TEST_F(MountFacts, SwappingTheSourceNeverGrantsSomethingElse) {
  folder("data/x");
  folder("data/spare");
  link("data/trap", "../secret");
  struct stat wanted{};
  ASSERT_EQ(::stat(path("data/x").c_str(), &wanted), 0);
  std::atomic<bool> over = false;
  std::thread swapper([&] {
    while (!over) {
      ::renameat2(AT_FDCWD, path("data/x").c_str(), AT_FDCWD, path("data/trap").c_str(),
                  RENAME_EXCHANGE);
    }
  });
  const MountJudge one = judge();
  int granted = 0;
  int refused = 0;
  for (int i = 0; i < 10'000; ++i) {
    auto judged = one.grant(data(), {path("data/x"), MountMode::kReadOnly});
    if (!judged.ok()) {
      ++refused;
      continue;
    }
    ++granted;
    struct stat info{};
    EXPECT_EQ(::fstat(judged->source.get(), &info), 0);
    EXPECT_EQ(info.st_ino, wanted.st_ino);
  }
  over = true;
  swapper.join();
  EXPECT_GT(granted, 0);
  EXPECT_GT(refused, 0);
}

// R130
TEST_F(MountFacts, ARefusedGrantIsAnErrorWithPathAndRule) {
  auto refused = judge().grant(data(), {path("secret"), MountMode::kReadOnly});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, HasSubstr(path("secret")));
  EXPECT_THAT(refused.error().message, HasSubstr("forbidden"));
  auto writable = judge().grant({policy::MountGrants::By::kLists, {path("data")}, {}},
                                {path("data"), MountMode::kReadWrite});
  ASSERT_FALSE(writable.ok());
  EXPECT_THAT(writable.error().message, HasSubstr("not_writable"));
}

// R136
TEST_F(MountFacts, CarrelsOwnPlacesAreForbidden) {
  folder("conf");
  file("conf/carrel.toml");
  folder("conf/sub");
  folder("state");
  auto paths = host_forbidden_paths({path("state"), path("conf/carrel.toml")});
  ASSERT_TRUE(paths.ok());
  auto one = MountJudge::open(paths.value());
  ASSERT_TRUE(one.ok()) << one.error().to_string();
  const auto rule_of = [&](const std::string& name) {
    auto judged = one->judge({}, {path(name), MountMode::kReadWrite});
    return judged.ok() ? std::string(policy::rule_name(judged->decision.rule))
                       : judged.error().to_string();
  };
  EXPECT_EQ(rule_of("conf"), "forbidden");
  EXPECT_EQ(rule_of("conf/carrel.toml"), "forbidden");
  EXPECT_EQ(rule_of("conf/sub"), "command_line");
  EXPECT_EQ(rule_of("state"), "forbidden");
  EXPECT_EQ(rule_of(""), "above_forbidden");
  EXPECT_EQ(rule_of("data"), "command_line");
  EXPECT_FALSE(host_forbidden_paths({"", path("conf/none.toml")}).ok());
}

}  // namespace
}  // namespace carrel::storage
