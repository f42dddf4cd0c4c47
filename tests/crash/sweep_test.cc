// Who takes away what others left.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "remains.h"
#include "support/box.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::seconds;

class Sweep : public CarrelTest {
 protected:
  [[nodiscard]] std::string run_path(const std::string& name) const {
    return place().home(GetParam()) + "/run/" + name;
  }
  // A user's one-shot without control groups has nothing that a crash could leave.
  [[nodiscard]] bool needs_marks() const { return as_root(); }
  [[nodiscard]] bool has_marks() const { return !fs::is_empty(run_path("once")); }
};
CARREL_AS_BOTH(Sweep);

// R27
TEST_P(Sweep, AKilledRunIsSweptByTheVeryNextCommand) {
  Box box(GetParam());
  const std::vector<std::vector<std::string>> next = {
      {"run", "--", "true"}, {"ls"}, {"sh", box.id(), "true"}, {"exec", box.id(), "--", "true"}};
  for (const std::vector<std::string>& words : next) {
    const std::size_t before = first_processes().size();
    Process process(launch({"run", "--", "bash", "-c", "echo up; setsid sleep 600 & sleep 600"}));
    ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
    process.send(SIGKILL);
    process.wait(seconds(5));
    EXPECT_TRUE(eventually(seconds(5), [&] { return first_processes().size() == before; }));
    ASSERT_EQ(has_marks(), needs_marks());
    EXPECT_EQ(carrel(words).status, 0);
    EXPECT_FALSE(has_marks()) << words[0];
    EXPECT_EQ(inconsistencies(GetParam()), "") << words[0];
  }
}

TEST_P(Sweep, ARunThatIsAliveIsNotSwept) {
  Process process(launch({"run", "--", "bash", "-c", "echo up; read line; echo $line"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  EXPECT_EQ(carrel({"run", "--", "true"}).status, 0);
  EXPECT_EQ(carrel({"ls"}).status, 0);
  EXPECT_EQ(has_marks(), needs_marks());
  process.write("still here\n");
  Run run = process.wait(seconds(10));
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, "up\nstill here\n");
}

// R26, B-44
TEST_P(Sweep, AnotherInstallationsRemainsAreLeftAlone) {
  const std::string other = place().work(GetParam()) + "/other";
  ASSERT_EQ(::mkdir(other.c_str(), 0700), 0);
  place().give(other, GetParam());
  const Options options{.environment = {"CARREL_HOME=" + other}};
  Process process(launch({"run", "--", "bash", "-c", "echo up; sleep 600"}, options));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  process.send(SIGKILL);
  process.wait(seconds(5));
  EXPECT_TRUE(eventually(seconds(5), [] { return first_processes().empty(); }));
  EXPECT_EQ(carrel({"ls"}).status, 0);
  EXPECT_EQ(carrel({"run", "--", "true"}).status, 0);
  EXPECT_NE(fs::is_empty(other + "/run/once"), needs_marks());
  EXPECT_EQ(carrel({"ls"}, options).status, 0);
  EXPECT_TRUE(fs::is_empty(other + "/run/once"));
}

// Nobody could reach them any more, and nobody could end them.
TEST_P(Sweep, WhatRunsInAnInstallationThatIsRemovedEnds) {
  const std::string other = place().work(GetParam()) + "/other";
  ASSERT_EQ(::mkdir(other.c_str(), 0700), 0);
  place().give(other, GetParam());
  const Options options{.environment = {"CARREL_HOME=" + other}};
  const std::size_t before = first_processes().size();
  const auto keepers = processes_of("keeper").size();
  const auto egress = processes_of("egress").size();
  for (const char* network : {"none", "allow=example.org"}) {
    const Run made = carrel({"create", "--network", network}, options);
    ASSERT_EQ(made.status, 0) << made.err;
  }
  ASSERT_EQ(first_processes().size(), before + 2);
  ASSERT_EQ(processes_of("keeper").size(), keepers + 1);
  ASSERT_GT(processes_of("egress").size(), egress);
  fs::remove_all(other);
  EXPECT_TRUE(eventually(seconds(30), [&] {
    return first_processes().size() == before && processes_of("keeper").size() == keepers &&
           processes_of("egress").size() == egress;
  })) << first_processes().size();
}

// B-44
TEST_P(Sweep, StraysWithoutAMarkAreTakenAway) {
  Box box(GetParam());
  const std::string nobody = "01234567-89ab-4cde-8f01-23456789abcd";
  const std::string stale = place().home(GetParam()) + "/events.jsonl.999999999.new";
  write_text(stale, "half");
  place().give(stale, GetParam());
  ASSERT_EQ(::symlink(nobody.c_str(), run_path("ids/77777").c_str()), 0);
  place().give(run_path("ids/77777"), GetParam());
  if (as_root()) {
    for (const std::string& mount : group_mounts()) {
      const bool in_home = fs::exists(mount + "/carrel");
      const std::string group = mount + (in_home ? "/carrel" : "") + "/carrel-" +
                                place().label(GetParam()) + "-" + nobody;
      if (in_home || mount.ends_with("/pids") || mount.ends_with("/unified")) {
        ASSERT_EQ(::mkdir(group.c_str(), 0755), 0) << group;
      }
    }
  }
  ASSERT_NE(inconsistencies(GetParam()), "");
  EXPECT_EQ(carrel({"ls"}).status, 0);
  EXPECT_EQ(inconsistencies(GetParam()), "");
  EXPECT_EQ(box.sh("echo ok").out, "ok\n");
}

// B-44
TEST_P(Sweep, ABoxThatWasNeverFinishedIsTakenAway) {
  ASSERT_EQ(carrel({"ls"}).status, 0);
  const std::string box = run_path("box/01234567-89ab-4cde-8f01-23456789abcd");
  ASSERT_EQ(::mkdir(box.c_str(), 0700), 0);
  write_text(box + "/record.1.new", "id=");
  place().give(box, GetParam());
  place().give(box + "/record.1.new", GetParam());
  EXPECT_EQ(carrel({"run", "--", "true"}).status, 0);
  EXPECT_EQ(inconsistencies(GetParam()), "");
}

TEST_P(Sweep, ARemovalThatWasKilledIsFinished) {
  Box box(GetParam(), {"--name", "half"});
  const std::string note = run_path("box/" + box.id() + "/ending");
  write_text(note, "it was removed");
  place().give(note, GetParam());
  EXPECT_EQ(carrel({"ls", "--json"}).out, "{\"sandboxes\":[]}\n");
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
  EXPECT_EQ(box.info()["reason"], "it was removed");
  EXPECT_EQ(carrel({"create", "--name", "half"}).status, 0) << "the name is free again";
}

// R100
TEST_P(Sweep, DaemonsAreGoneAfterRemove) {
  Box box(GetParam());
  EXPECT_EQ(box.sh("(setsid bash -c 'trap \"\" TERM HUP; sleep 601; sleep 602' &)").status, 0);
  EXPECT_EQ(box.remove().status, 0);
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "");
}

// R209
TEST_P(Sweep, TheReasonOfASuddenEndIsKept) {
  Box box(GetParam());
  Process process(launch({"sh", box.id(), "echo up; sleep 600"}));
  ASSERT_TRUE(process.wait_for_output("up", seconds(10)));
  ASSERT_EQ(::kill(box.first_process(), SIGKILL), 0);
  Run run = process.wait(seconds(2));
  EXPECT_FALSE(run.timed_out);
  EXPECT_EQ(run.status, 125);
  EXPECT_NE(run.err.find("sandbox " + box.id() + " ended"), std::string::npos) << run.err;
  EXPECT_TRUE(eventually(seconds(2), [&] { return box.info()["state"] == "ended"; }));
  EXPECT_EQ(box.info()["reason"], "its first process was killed by signal 9");
}

}  // namespace
}  // namespace carrel::test
