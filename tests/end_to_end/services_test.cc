// Programs that run as long as their sandbox does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "support/patience.h"
#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Listens after a third of a second.
constexpr const char* kWeb =
    "sleep 0.3; echo up >> starts; exec python3 -m http.server 8000 --bind 127.0.0.1";

class Services : public ServeTest {
 protected:
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }
  json service(const std::string& box, const std::string& query = "") {
    const ApiAnswer answer = get(box + "/services" + query);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? answer.json()["services"][0] : json::object();
  }
  static json web() { return {{"command", kWeb}, {"ready", {{"port", 8000}}}}; }
};
CARREL_AS_BOTH(Services);

// R174
TEST_P(Services, ServiceIsReadyWhenItsPortIsOpenAndComesBackWhenItCrashes) {
  serve();
  const std::string box = create({{"workspace", "w"}, {"services", {{"web", web()}}}});
  EXPECT_EQ(service(box)["state"], "starting");
  const auto before = std::chrono::steady_clock::now();
  const json ready = get(box + "/services?wait_ms=20000").json();
  EXPECT_EQ(ready["ready"], true) << ready;
  EXPECT_LT(std::chrono::steady_clock::now() - before, patient(5s));
  EXPECT_EQ(get(box + "/ports/8000/starts").body, "up\n");
  EXPECT_EQ(ready["services"][0]["restarts"], 0);
  EXPECT_TRUE(ready["services"][0]["last_exit"].is_null());
  // A crash.
  shell(box, "kill -9 $(pgrep -f http.server)");
  ASSERT_TRUE(eventually(10s, [&] { return service(box)["restarts"] == 1; }));
  const json again = service(box, "?wait_ms=20000");
  EXPECT_EQ(again["state"], "ready");
  EXPECT_EQ(again["last_exit"], 137);
  EXPECT_EQ(get(box + "/ports/8000/starts").body, "up\nup\n");
  // What it prints is the output of a command.
  EXPECT_THAT(get(box + "/commands/" + again["command"].get<std::string>() + "/output").body,
              HasSubstr("GET /starts"));
  EXPECT_THAT(carrel({"info", id_of(box)}).out, HasSubstr("web ready"));
  EXPECT_EQ(get(box).json()["services"][0]["name"], "web");
  // With the sandbox.
  EXPECT_EQ(post(box + "/stop", json::object()).status, 200);
  EXPECT_EQ(carrel({"start", "--wait-ready", "20", id_of(box)}).status, 0);
  EXPECT_EQ(get(box + "/ports/8000/starts").body, "up\nup\nup\n");
}

// R174, B-46: nobody sleeps for as long as it usually takes
TEST_P(Services, ReadinessIsKnownWithinASecondOfTheStart) {
  serve();
  const std::string listen =
      "import socket, time\n"
      "s = socket.create_server(('127.0.0.1', 8001))\n"
      "print(time.time_ns() // 1000000, flush=True)\n"
      "time.sleep(1000)\n";
  const std::string box = create(
      {{"services",
        {{"late",
          {{"command", "sleep 1.3; exec python3 -c \"$LISTEN\""}, {"ready", {{"port", 8001}}}}}}},
       {"env", {{"LISTEN", listen}}}});
  const json ready = get(box + "/services?wait_ms=20000").json();
  const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  ASSERT_EQ(ready["ready"], true) << ready;
  const std::string command = ready["services"][0]["command"];
  const std::string said = get(box + "/commands/" + command + "/output").body;
  ASSERT_FALSE(said.empty());
  EXPECT_GE(now.count(), std::stoll(said)) << "before it was so";
  EXPECT_LT(now.count() - std::stoll(said), patient(1s).count());
}

TEST_P(Services, ServiceThatCannotStayIsStartedAgainAfterPausesThatGrow) {
  serve();
  const std::string box =
      create({{"service", {"bad=echo $EPOCHREALTIME >> times; (sleep 1000 &) ; exit 3"}}});
  ASSERT_TRUE(eventually(10s, [&] { return service(box)["restarts"].get<int>() >= 3; }));
  EXPECT_EQ(service(box)["last_exit"], 3);
  // Pauses of 0.1, 0.2 and 0.4 seconds; and what each left is gone.
  const int starts = service(box)["restarts"].get<int>() + 1;
  EXPECT_LE(starts, 6);
  const int left = std::stoi(shell(box, "pgrep -c sleep")["stdout"].get<std::string>());
  EXPECT_LE(left, 1);
  EXPECT_EQ(get(box + "/services?wait_ms=100").json()["ready"], false);
}

TEST_P(Services, CommandSaysWhenAServiceIsReady) {
  file("carrel.toml",
       "[services.late]\ncommand = \"sleep 0.4; touch ready; sleep 1000\"\n"
       "ready = {command = \"test -e ready\"}\n");
  const Run made = carrel({"create", "--name", "one", "--wait-ready", "20", "--json"});
  EXPECT_EQ(made.status, 0) << made.out << made.err;
  EXPECT_EQ(json::parse(made.out)["ready"], true);
  EXPECT_EQ(carrel({"sh", "one", "test -e ready"}).status, 0);
  // Those that only ask are not left behind.
  const json info = json::parse(carrel({"info", "--json", "one"}).out);
  EXPECT_EQ(info["services"][0]["state"], "ready");
  EXPECT_EQ(info["held_by"].size(), 1U) << info["held_by"];
}

TEST_P(Services, WaitThatIsInVainSaysWhatIsMissingAndLeavesTheSandbox) {
  const Run made = carrel(
      {"create", "--name", "one", "--service", "never:9=sleep 1000", "--wait-ready", "300ms"});
  EXPECT_NE(made.status, 0);
  EXPECT_THAT(made.err, HasSubstr("never (starting)"));
  EXPECT_EQ(made.out.size(), 37U);  // its id
  EXPECT_EQ(carrel({"sh", "one", "true"}).status, 0);
}

TEST_P(Services, ServiceDoesNotHoldItsSandboxUp) {
  serve();
  const std::string box =
      create({{"on_idle", "pause"},
              {"idle_timeout", 0.2},
              {"service", {"tick=while :; do date >> ticks; sleep 0.05; done"}}});
  ASSERT_TRUE(eventually(10s, [&] { return get(box).json()["state"] == "paused"; }));
  EXPECT_EQ(service(box)["state"], "ready");
  EXPECT_EQ(shell(box, "test -s ticks")["exit_code"], 0);
}

TEST_P(Services, WhatMakesNoSenseIsRefused) {
  serve();
  EXPECT_EQ(post("/v1/sandboxes", {{"service", {"x"}}}).status, 400);
  EXPECT_EQ(post("/v1/sandboxes", {{"services", {{"a b", {{"command", "x"}}}}}}).status, 400);
  EXPECT_EQ(post("/v1/sandboxes", {{"services", {{"a", "x"}}}}).status, 400);
  EXPECT_EQ(get("/v1/sandboxes").json()["sandboxes"], json::array());
}

}  // namespace
}  // namespace carrel::test
