// Sandboxes that die, and those that are made again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Recovery : public ServeTest {
 protected:
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }

  // Dies while this command runs in it; what the client was answered.
  ApiAnswer die_during(const std::string& box, const std::string& command) {
    auto answer = std::async(std::launch::async,
                             [&] { return post(box + "/shell", {{"command", command}}); });
    EXPECT_TRUE(eventually(5s, [&] {
      return post(box + "/exec", {{"argv", {"test", "-s", "count"}}}).json()["exit_code"] == 0;
    }));
    const auto before = std::chrono::steady_clock::now();
    kill_guest(box);
    EXPECT_EQ(answer.wait_for(10s), std::future_status::ready);
    EXPECT_LT(std::chrono::steady_clock::now() - before, patient(2s));
    return answer.get();
  }
};
CARREL_AS_BOTH(Recovery);

constexpr const char* kSlow = "echo run >> count; sleep 30";

// R206, R207
TEST_P(Recovery, EachKindOfFailureHasItsCodeAndItsPlaceInTheLog) {
  serve();
  const std::string box = create({{"workspace", "w"}});
  const auto logged = [&](const std::string& route, int status) {
    const std::string line = "\"route\":\"/v1/sandboxes/{id}" + route +
                             "\",\"status\":" + std::to_string(status) +
                             ",\"owner\":\"\",\"sandbox\":\"" + id_of(box) + "\"";
    return eventually(2s, [&] { return daemon_->log().find(line) != std::string::npos; });
  };
  // A timeout is what the command did, and no failure of the daemon's.
  const ApiAnswer slow =
      post(box + "/exec", {{"argv", {"bash", "-c", "echo a; sleep 4646"}}, {"timeout", 0.3}});
  EXPECT_EQ(slow.status, 200);
  EXPECT_EQ(slow.json()["timed_out"], true);
  EXPECT_EQ(slow.json()["stdout"], "a\n");
  EXPECT_NE(shell(box, "pgrep sleep")["exit_code"], 0) << "it is gone";
  const auto fails = [&](const ApiAnswer& answer, int status, const std::string& code,
                         const std::string& text) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_EQ(answer.json()["code"], code);
    EXPECT_THAT(answer.json()["detail"].get<std::string>(), HasSubstr(text));
  };
  fails(get(box + "/files?path=none"), 404, "not_found", "none");
  EXPECT_TRUE(logged("/files", 404));
  fails(get(box + "/files?path=../../etc/shadow"), 403, "denied", "unsafe");
  EXPECT_TRUE(logged("/files", 403));
  fails(post(box + "/exec", {{"argv", json::array()}}), 400, "invalid", "argv");
  EXPECT_TRUE(logged("/exec", 400));
  fails(die_during(box, "echo run > count; sleep 30"), 410, "gone", "killed by signal 9");
  EXPECT_TRUE(logged("/shell", 410));
  // What is left is what was to stay.
  EXPECT_TRUE(eventually(5s, [&] { return get(box).json()["state"] == "ended"; }));
  EXPECT_EQ(shell(create({{"workspace", "w"}}), "cat count")["stdout"], "run\n");
}

// R208, R209
TEST_P(Recovery, DeathDuringACommandIsToldAtOnceAndForGood) {
  serve();
  const std::string box = create();
  const ApiAnswer died = die_during(box, kSlow);
  EXPECT_EQ(died.status, 410);
  EXPECT_EQ(died.json()["code"], "gone");
  EXPECT_THAT(died.body, HasSubstr("killed by signal 9"));
  EXPECT_EQ(get(box).json()["state"], "ended");
  EXPECT_EQ(post(box + "/shell", {{"command", "true"}}).status, 410);
}

// R208
TEST_P(Recovery, SandboxIsMadeAgainForTheNextCallAndItsCommandIsNotRunAgain) {
  serve();
  const std::string box = create({{"name", "one"},
                                  {"workspace", "w"},
                                  {"on_failure", "recreate"},
                                  {"env", {{"KEPT", "yes"}}}});
  shell(box, "gone=1");
  const ApiAnswer died = die_during(box, kSlow);
  EXPECT_EQ(died.status, 410);
  EXPECT_EQ(died.json()["code"], "gone");
  EXPECT_THAT(died.body, HasSubstr("the next call starts it again"));
  EXPECT_EQ(shell(box, "cat count; echo $KEPT$gone")["stdout"], "run\nyes\n");
  EXPECT_EQ(get(box).json()["name"], "one");
  // The command line has it, too, whoever saw the death.
  kill_guest(box);
  EXPECT_EQ(carrel({"sh", "one", "cat count"}).out, "run\n");
  EXPECT_EQ(json::parse(carrel({"info", "--json", "one"}).out)["settings"]["on-failure"],
            "recreate");
}

// R208
TEST_P(Recovery, WhatWasRemovedOrHadALeaseIsNotMadeAgain) {
  serve();
  const json again = {{"workspace", "w"}, {"on_failure", "recreate"}};
  const std::string removed = create(again);
  EXPECT_EQ(remove(removed).status, 204);
  EXPECT_EQ(post(removed + "/shell", {{"command", "true"}}).status, 410);
  json leased = again;
  leased["lease"] = 0.5;
  const std::string over = create(leased);
  ASSERT_TRUE(eventually(10s, [&] { return get(over).json()["state"] != "running"; }));
  EXPECT_EQ(get(over).json()["state"], "ended");
  EXPECT_EQ(get(over).json()["reason"], "its lease ran out");
}

TEST_P(Recovery, WhatHasNoWorkspaceCannotBeMadeAgain) {
  serve();
  const ApiAnswer refused = post("/v1/sandboxes", {{"on_failure", "recreate"}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("workspace"));
  EXPECT_EQ(post("/v1/sandboxes", {{"on_failure", "pray"}}).status, 400);
  EXPECT_EQ(carrel({"create", "--on-failure", "recreate"}).status, 2);
}

}  // namespace
}  // namespace carrel::test
