#include "backends/docker/family.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <initializer_list>

#include "base/unique_fd.h"

namespace carrel::docker {
namespace {

std::string words(std::initializer_list<const char*> each) {
  std::string all;
  for (const char* word : each) {
    all.append(word).push_back('\0');
  }
  return all;
}

// Two engines with a containerd each, and what lives beside them.
HostProcesses host() {
  return {
      {1, {"systemd", 0, {}}},
      {10, {"dockerd", 1, {}}},
      {11, {"containerd", 10, words({"containerd", "--config", "/a/containerd/containerd.toml"})}},
      {12, {"containerd-shim", 1, words({"shim", "-address", "/a/containerd/containerd.sock"})}},
      {13, {"runc", 12, {}}},
      {14, {"runc:[2:INIT]", 13, {}}},
      {20, {"dockerd", 1, {}}},
      {21, {"containerd", 20, words({"containerd", "--config", "/b/containerd/containerd.toml"})}},
      {22, {"containerd-shim", 1, words({"shim", "-address", "/b/containerd/containerd.sock"})}},
      {30, {"containerd", 1, words({"/usr/bin/containerd"})}},
      {31, {"containerd-shim", 1, words({"shim", "-address", "/run/containerd/containerd.sock"})}},
      {32, {"containerd-shim", 1, {}}},
      {40, {"carrel", 1, {}}},
      {41, {"runsc", 40, {}}},
      {50, {"conmon", 1, {}}},
      {51, {"crun", 50, {}}},
  };
}

TEST(DockerFamily, ProgramsOfAnEngineAreKnownByTheirNames) {
  for (const char* name : {"dockerd", "containerd-shim", "runc:[2:INIT]", "runsc", "podman"}) {
    EXPECT_TRUE(works_for_engine(name)) << name;
  }
  for (const char* name : {"bash", "python3", "docker", "podmanx", "runsc-sandbox", ""}) {
    EXPECT_FALSE(works_for_engine(name)) << name;
  }
}

TEST(DockerFamily, PartsOfGvisorBuildASandboxWhileTheyAreYoung) {
  constexpr std::uint64_t kAsked = 1000;
  EXPECT_TRUE(builds_sandbox({"exe", 12, {}, kAsked}, kAsked));
  EXPECT_FALSE(builds_sandbox({"exe", 12, {}, kAsked - 1}, kAsked)) << "it works for its sandbox";
  EXPECT_FALSE(builds_sandbox({"bash", 12, {}, kAsked}, kAsked));
}

TEST(DockerFamily, TheStartOfAProcessIsRead) {
  const std::uint64_t before = ticks_now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  ASSERT_GT(child, 0);
  const TaskState task = parse_task(read_proc("/proc/" + std::to_string(child) + "/stat"));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GE(task.started, before);
  EXPECT_LE(task.started, ticks_now());
}

TEST(DockerFamily, WhatAnEngineStartedWorksForIt) {
  const HostProcesses all = host();
  for (const pid_t process : {10, 11, 12, 13, 14}) {
    const Employer employer = employer_of(all, process);
    EXPECT_EQ(employer.kind, Employer::Kind::kKnown) << process;
    EXPECT_EQ(employer.engine, 10) << process;
  }
  for (const pid_t process : {20, 21, 22}) {
    EXPECT_EQ(employer_of(all, process).engine, 20) << process;
  }
}

TEST(DockerFamily, WhatEnginesShareMayWorkForAny) {
  for (const pid_t process : {30, 31, 32, 50, 51}) {
    EXPECT_EQ(employer_of(host(), process).kind, Employer::Kind::kSome) << process;
  }
}

TEST(DockerFamily, ARuntimeThatSomebodyElseStartedWorksForNone) {
  for (const pid_t process : {1, 40, 41, 99}) {
    EXPECT_EQ(employer_of(host(), process).kind, Employer::Kind::kNone) << process;
  }
}

TEST(DockerFamily, ACircleOfParentsEnds) {
  EXPECT_EQ(employer_of({{5, {"a", 6, {}}}, {6, {"b", 5, {}}}}, 5).kind, Employer::Kind::kNone);
}

TEST(DockerFamily, ATaskIsReadPastWhateverItsNameHolds) {
  const TaskState task = parse_task("12 (a) R 1 (b)) D 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0");
  EXPECT_EQ(task.name, "a) R 1 (b)");
  EXPECT_EQ(task.state, 'D');
  EXPECT_EQ(task.ticks, 42U);
  EXPECT_EQ(task.parent, 1);
  EXPECT_EQ(parse_task("12 (x").state, '?');
  EXPECT_EQ(parse_task(") D (x").state, '?');
  EXPECT_EQ(parse_task("").ticks, 0U);
}

TEST(DockerFamily, EverybodyIsFoundWithHisParent) {
  const HostProcesses all = look_around();
  ASSERT_TRUE(all.contains(::getpid()));
  EXPECT_EQ(all.at(::getpid()).parent, ::getppid());
}

TEST(DockerFamily, WhoeverListensIsNoEngineWithoutTheNameOfOne) {
  const std::string path = testing::TempDir() + "family-" + std::to_string(::getpid());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(engine_at(path), 0);
  ::unlink(path.c_str());
  EXPECT_EQ(engine_at(path), 0);
  EXPECT_EQ(engine_at(std::string(200, 'x')), 0);
}

}  // namespace
}  // namespace carrel::docker
