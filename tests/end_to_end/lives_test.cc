// Sandboxes that are put to rest and woken: by somebody, and by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
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
  const std::string limited = start(box, {{"argv", {"sleep", "0.4"}}, {"timeout", 0.9}});
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
  std::this_thread::sleep_for(1s);
  EXPECT_EQ(post(box + "/resume", json::object()).json()["state"], "running");
  EXPECT_EQ(shell(box, "echo $x")["stdout"], "kept\n");
  EXPECT_TRUE(eventually(5s, [&] {
    return std::stol("0" + shell(box, "cat gap")["stdout"].get<std::string>()) > 900'000;
  }));
  // The time of commands did not pass.
  EXPECT_TRUE(eventually(5s, [&] { return get(limited).json()["state"] == "ended"; }));
  EXPECT_EQ(get(limited).json()["result"]["timed_out"], false);
}

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
  EXPECT_LT(std::chrono::steady_clock::now() - before, 5s);
  EXPECT_EQ(post(box + "/resume", json::object()).status, 410);
}

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

}  // namespace
}  // namespace carrel::test
