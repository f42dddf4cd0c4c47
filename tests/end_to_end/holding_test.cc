// What holds a sandbox up, why it ended, and how much disk it uses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Holding : public ServeTest {
 protected:
  static std::string id_of(const std::string& box) { return box.substr(box.rfind('/') + 1); }
  // The first holder of that kind; null: there is none.
  json holder(const std::string& box, const std::string& by) {
    const json shown = get(box).json();
    for (const json& one : shown["held_by"]) {
      if (one["by"] == by) {
        return one;
      }
    }
    return nullptr;
  }
};
CARREL_AS_BOTH(Holding);

TEST_P(Holding, WhatHoldsASandboxUpIsNamed) {
  serve();
  const std::string box = create();
  EXPECT_TRUE(holder(box, "keep").is_object());
  EXPECT_TRUE(holder(box, "command").is_null());
  const std::string command = start(box, {{"argv", {"sleep", "100"}}});
  EXPECT_EQ(holder(box, "command")["what"], "sleep 100");
  EXPECT_EQ(box + "/commands/" + holder(box, "command")["command"].get<std::string>(), command);
  EXPECT_THAT(carrel({"info", id_of(box)}).out, HasSubstr("sleep 100"));
  EXPECT_EQ(remove(command).status, 204);
  EXPECT_TRUE(eventually(5s, [&] { return holder(box, "command").is_null(); }));
  // A lease in place of keeping it.
  ask(daemon_->socket(),
      {.method = "PUT", .path = box + "/lease", .body = json{{"seconds", 500}}.dump()});
  EXPECT_TRUE(holder(box, "keep").is_null());
  EXPECT_EQ(holder(box, "lease")["until_ms"], get(box).json()["lease_ends_ms"]);
  const json shown = json::parse(carrel({"info", "--json", id_of(box)}).out);
  EXPECT_EQ(shown["held_by"][0]["by"], "lease");
  // Somebody who is in it.
  Process inside(launch({"exec", id_of(box), "--", "sh", "-c", "echo in; sleep 100"}));
  ASSERT_TRUE(inside.wait_for_output("in", 10s));
  EXPECT_TRUE(holder(box, "connection").is_object());
}

TEST_P(Holding, IdleTimeHoldsAndSaysWhatComesAfterIt) {
  serve();
  const std::string box = create({{"on_idle", "pause"}, {"idle_timeout", 90}});
  EXPECT_EQ(holder(box, "idle_time")["what"], "pause after 90s without use");
  EXPECT_TRUE(holder(box, "keep").is_null());
}

TEST_P(Holding, LeaseIsKnownWhoeverMadeTheSandbox) {
  serve();
  ASSERT_EQ(carrel({"create", "--name", "one", "--lease", "1h"}).status, 0);
  const json one = get("/v1/sandboxes?name=one").json()["sandboxes"][0];
  EXPECT_GT(one["lease_ends_ms"].get<std::int64_t>(), one["created_ms"].get<std::int64_t>());
}

TEST_P(Holding, NothingHoldsWhatHasEndedAndItsReasonIsKept) {
  serve();
  const std::string box = create();
  EXPECT_EQ(remove(box).status, 204);
  const json ended = get(box).json();
  EXPECT_EQ(ended["held_by"], json::array());
  EXPECT_EQ(ended["reason"], "it was removed");
  EXPECT_THAT(carrel({"info", id_of(box)}).out, HasSubstr("it was removed"));
}

TEST_P(Holding, UsageCountsTheDisk) {
  serve();
  for (const json& spec : {json::object(), json{{"workspace", "w"}}}) {
    const std::string box = create(spec);
    const auto before = get(box + "/usage").json()["disk_bytes"].get<std::uint64_t>();
    shell(box, "head -c 3000000 /dev/urandom > big; sync big");
    EXPECT_TRUE(eventually(5s, [&] {
      return get(box + "/usage").json()["disk_bytes"].get<std::uint64_t>() >= before + 2900000;
    })) << get(box + "/usage").body;
    const json shown = json::parse(carrel({"stats", "--json", id_of(box)}).out);
    EXPECT_GE(shown["disk_bytes"].get<std::uint64_t>(), before + 2900000);
    // To look is no use: what rests goes on resting.
    EXPECT_EQ(post(box + "/pause", json::object()).status, 200);
    EXPECT_EQ(get(box + "/usage").status, 200);
    EXPECT_EQ(get(box).json()["state"], "paused");
  }
}

}  // namespace
}  // namespace carrel::test
