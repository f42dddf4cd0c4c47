// Sandboxes that are put to rest and woken: by somebody, and by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Lives : public ServeTest {
 protected:
  std::string state_of(const std::string& box) { return get(box).json()["state"]; }
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }
};
CARREL_AS_BOTH(Lives);

TEST_P(Lives, PausedSandboxStandsStillAndGoesOnFromThere) {
  serve();
  const std::string box = create();
  shell(box, "x=kept");
  // Its longest gap is in the file, in microseconds.
  start(box, {{"argv",
               {"bash", "-c",
                "last=${EPOCHREALTIME/./}; most=0; echo 0 > gap; while :; do sleep 0.01; "
                "now=${EPOCHREALTIME/./}; gap=$((now - last)); last=$now; "
                "if ((gap > most)); then most=$gap; echo $most > gap; fi; done"}}});
  ASSERT_TRUE(eventually(5s, [&] { return shell(box, "cat gap")["exit_code"] == 0; }));
  const std::string limited = start(box, {{"argv", {"sleep", "0.4"}}, {"timeout", 3}});
  EXPECT_EQ(post(box + "/pause", json::object()).json()["state"], "paused");
  EXPECT_EQ(post(box + "/pause", json::object()).status, 200);
  const json paused = get(box).json();
  EXPECT_EQ(paused["desired_state"], "paused");
  EXPECT_EQ(paused["reason"], "somebody paused it");
  const ApiAnswer refused = post(box + "/shell", {{"command", "true"}});
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("is paused"));
  EXPECT_TRUE(says_one_line(carrel({"sh", id_of(box), "true"}), "is paused"));
  EXPECT_THAT(carrel({"ls"}).out, HasSubstr("paused"));
  std::this_thread::sleep_for(3200ms);  // longer than the command may take
  EXPECT_EQ(post(box + "/resume", json::object()).json()["state"], "running");
  EXPECT_EQ(shell(box, "echo $x")["stdout"], "kept\n");
  EXPECT_TRUE(eventually(5s, [&] {
    return std::stol("0" + shell(box, "cat gap")["stdout"].get<std::string>()) > 900'000;
  }));
  // The time of commands did not pass.
  EXPECT_TRUE(eventually(5s, [&] { return get(limited).json()["state"] == "ended"; }));
  EXPECT_EQ(get(limited).json()["result"]["timed_out"], false);
}

// R54
TEST_P(Lives, PauseOutlivesTheDaemonAndEndsWithTheSandbox) {
  serve();
  const std::string box = create({{"workspace", "kept"}});
  shell(box, "echo one > a");
  EXPECT_EQ(carrel({"pause", id_of(box)}).status, 0);
  daemon_->kill();
  serve();
  EXPECT_EQ(state_of(box), "paused");
  // A snapshot neither needs it to run nor lets it.
  EXPECT_EQ(post(box + "/snapshots", {{"name", "asleep"}}).status, 201);
  EXPECT_EQ(state_of(box), "paused");
  EXPECT_EQ(post(box + "/shell", {{"command", "true"}}).status, 409);
  EXPECT_EQ(carrel({"resume", id_of(box)}).status, 0);
  EXPECT_EQ(shell(box, "cat a")["stdout"], "one\n");
  EXPECT_EQ(post(box + "/pause", json::object()).status, 200);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(remove(box).status, 204);
  EXPECT_LT(std::chrono::steady_clock::now() - before, patient(5s));
  EXPECT_EQ(post(box + "/resume", json::object()).status, 410);
}

// R181
TEST_P(Lives, IdleSandboxIsPausedAndWokenByTheNextCall) {
  serve();
  const std::string box = create({{"on_idle", "pause"}, {"idle_timeout", 0.2}});
  shell(box, "x=kept");
  ASSERT_TRUE(eventually(10s, [&] { return state_of(box) == "paused"; }));
  EXPECT_EQ(get(box).json()["reason"], "nobody used it for 200ms");
  EXPECT_EQ(shell(box, "echo $x")["stdout"], "kept\n");
  ASSERT_TRUE(eventually(10s, [&] { return state_of(box) == "paused"; }));
  EXPECT_EQ(carrel({"sh", id_of(box), "echo $x"}).out, "kept\n");
}

// R181, R183, B-41
TEST_P(Lives, SandboxWithACommandIsNotIdleAndOneWithoutIsRemoved) {
  serve();
  const std::string busy = create({{"on_idle", "remove"}, {"idle_timeout", 0.1}});
  const std::string idle = create({{"on_idle", "remove"}, {"idle_timeout", 0.1}});
  start(busy, {{"argv", {"sleep", "100"}}});
  ASSERT_TRUE(eventually(10s, [&] { return state_of(idle) == "ended"; }));
  EXPECT_THAT(get(idle).json()["reason"].get<std::string>(), HasSubstr("nobody used it for"));
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(state_of(busy), "running");
}

// R54
TEST_P(Lives, StoppedSandboxComesBackWithItsNameSettingsAndWorkspace) {
  serve();
  const std::string box = create(
      {{"name", "one"}, {"workspace", "kept"}, {"memory", "200m"}, {"env", {{"SECRET", "hush"}}}});
  shell(box, "echo mine > a; x=gone");
  EXPECT_EQ(post(box + "/stop", json::object()).json()["state"], "stopped");
  EXPECT_EQ(post(box + "/stop", json::object()).status, 200);
  const json stopped = get(box).json();
  EXPECT_EQ(stopped["desired_state"], "stopped");
  EXPECT_EQ(stopped["reason"], "somebody stopped it");
  EXPECT_THAT(carrel({"ls"}).out, HasSubstr("stopped"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("carrel_sandboxes 0\n"));
  const ApiAnswer refused = post(box + "/shell", {{"command", "true"}});
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("is stopped"));
  EXPECT_TRUE(says_one_line(carrel({"sh", "one", "true"}), "is stopped"));
  EXPECT_EQ(post("/v1/sandboxes", {{"name", "one"}}).status, 409);
  daemon_->kill();
  serve();
  EXPECT_EQ(state_of(box), "stopped");
  EXPECT_EQ(post(box + "/start", json::object()).json()["state"], "running");
  EXPECT_EQ(post(box + "/start", json::object()).status, 200);
  EXPECT_EQ(shell(box, "cat a; echo $SECRET$x")["stdout"], "mine\nhush\n");
  EXPECT_EQ(get(box).json()["settings"]["memory"], "200m");
  EXPECT_EQ(carrel({"stop", "one"}).status, 0);
  EXPECT_EQ(carrel({"start", "one"}).status, 0);
  EXPECT_EQ(carrel({"sh", "one", "cat a"}).out, "mine\n");
  EXPECT_EQ(carrel({"stop", "one"}).status, 0);
  EXPECT_EQ(carrel({"rm", "one"}).status, 0);
  EXPECT_EQ(state_of(box), "ended");
  EXPECT_EQ(post(box + "/start", json::object()).status, 410);
}

TEST_P(Lives, KilledStopsAndStartsLeaveASandboxThatRunsOrIsStopped) {
  ASSERT_EQ(carrel({"create", "--name", "one", "--workspace", "w"}).status, 0);
  ASSERT_EQ(carrel({"sh", "one", "echo mine > a"}).status, 0);
  for (int i = 0; i < 8; ++i) {
    for (const char* command : {"stop", "start"}) {
      Process killed(launch({command, "one"}));
      std::this_thread::sleep_for(std::chrono::milliseconds(4 + 9 * i));
      killed.send(SIGKILL);
      killed.wait(10s);
      std::string state;
      EXPECT_TRUE(eventually(10s,
                             [&] {
                               state = json::parse(carrel({"info", "--json", "one"}).out)["state"];
                               return state == "running" || state == "stopped";
                             }))
          << command << " left it " << state;
    }
  }
  const Run started = carrel({"start", "one"});
  EXPECT_EQ(started.status, 0) << started.err;
  const Run read = carrel({"sh", "one", "cat a"});
  EXPECT_EQ(read.out, "mine\n") << read.err;
}

// Whoever stops it removes its files one after the other, and may be killed over it.
TEST_P(Lives, LastFilesOfAStoppedSandboxDoNotEndIt) {
  ASSERT_EQ(carrel({"create", "--name", "one", "--workspace", "w"}).status, 0);
  const std::string id = json::parse(carrel({"info", "--json", "one"}).out)["id"];
  ASSERT_EQ(carrel({"stop", "one"}).status, 0);
  const std::string box = place().home(GetParam()) + "/run/box/" + id;
  ASSERT_EQ(::mkdir(box.c_str(), 0700), 0);
  const uid_t owner = as_root() ? 0 : Place::user_id();
  ASSERT_EQ(::chown(box.c_str(), owner, owner), 0);
  EXPECT_TRUE(eventually(10s, [&] {
    carrel({"ls"});
    return !std::filesystem::exists(box);
  }));
  EXPECT_EQ(json::parse(carrel({"info", "--json", "one"}).out)["state"], "stopped");
  EXPECT_EQ(carrel({"start", "one"}).status, 0);
}

TEST_P(Lives, TopShowsWhatSandboxesUse) {
  serve();
  const std::string busy = create({{"name", "busy"}});
  const std::string still = create({{"name", "still"}});
  start(busy, {{"argv", {"bash", "-c", "while :; do :; done"}}});
  EXPECT_EQ(post(still + "/pause", json::object()).status, 200);
  const json shown = json::parse(carrel({"top", "--json"}).out)["sandboxes"];
  ASSERT_EQ(shown.size(), 2U);
  EXPECT_EQ(shown[0]["name"], "busy");  // the busiest first
  EXPECT_GT(shown[0]["cores"].get<double>(), 0.0);
  EXPECT_EQ(shown[1]["state"], "paused");
  EXPECT_THAT(carrel({"top"}).out, testing::StartsWith("ID"));
}

TEST_P(Lives, WhatCannotComeBackIsNotStopped) {
  serve();
  const std::string box = create();
  const ApiAnswer refused = post(box + "/stop", json::object());
  EXPECT_EQ(refused.status, 409);
  EXPECT_THAT(refused.body, HasSubstr("--workspace"));
  EXPECT_EQ(state_of(box), "running");
  EXPECT_EQ(post("/v1/sandboxes", {{"on_idle", "stop"}}).status, 400);
  // One whose workspace was taken away stays stopped, and says why it cannot be started.
  const std::string lost = create({{"workspace", "w"}});
  EXPECT_EQ(post(lost + "/stop", json::object()).status, 200);
  EXPECT_EQ(carrel({"workspace", "rm", "w"}).status, 0);
  const ApiAnswer failed = post(lost + "/start", json::object());
  EXPECT_EQ(failed.status, 409);
  EXPECT_THAT(failed.body, HasSubstr("'w'"));
  EXPECT_EQ(state_of(lost), "stopped");
  EXPECT_EQ(remove(lost).status, 204);
  EXPECT_EQ(state_of(lost), "ended");
}

TEST_P(Lives, IdleSandboxIsStoppedAndStartedByTheNextCall) {
  serve({"--max-sandboxes", "1"});
  const std::string box = create({{"workspace", "w"}, {"on_idle", "stop"}, {"idle_timeout", 0.2}});
  shell(box, "echo here > a");
  ASSERT_TRUE(eventually(10s, [&] { return state_of(box) == "stopped"; }));
  EXPECT_EQ(shell(box, "cat a")["stdout"], "here\n");
  ASSERT_TRUE(eventually(10s, [&] { return state_of(box) == "stopped"; }));
  // It holds no place, and needs one to come back.
  const std::string other = create();
  EXPECT_EQ(post(box + "/shell", {{"command", "true"}}).status, 429);
  EXPECT_EQ(remove(other).status, 204);
  EXPECT_EQ(carrel({"sh", id_of(box), "cat a"}).out, "here\n");
}

}  // namespace
}  // namespace carrel::test
