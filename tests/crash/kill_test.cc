// kill -9 at random moments. CARREL_SEED repeats a run, CARREL_KILLS sets how many there are.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "remains.h"
#include "support/box.h"
#include "support/fixture.h"
#include "support/walls.h"

namespace carrel::test {
namespace {

using nlohmann::json;
using std::chrono::seconds;

class RandomKill : public CarrelTest {
 protected:
  struct Victim {
    std::vector<std::string> words;
    int most_ms;  // it has done its work by then
  };

  void SetUp() override {
    CarrelTest::SetUp();
    seed_ = number_from("CARREL_SEED", std::random_device{}());
    random_.seed(seed_);
  }

  // What somebody who was killed had asked of an engine goes when the next sandbox is made there.
  void sweep_engine() const {
    const std::string asked = place().home(GetParam()) + "/run/docker";
    EXPECT_TRUE(walls().backend != "docker" || eventually(seconds(10), [&] {
                  return carrel({"run", "--", "true"}).status == 0 &&
                         std::filesystem::is_empty(asked);
                }));
  }

  unsigned long pick(unsigned long below) { return random_() % below; }

  // Something to remove or to talk to, made on purpose if there is nothing.
  std::string some_box() {
    const std::set<std::string> alive = live_boxes(GetParam());
    return alive.empty() ? Box(GetParam()).id() : *alive.begin();
  }

  Victim pick_victim() {
    switch (pick(4)) {
      case 0:
        return {{"run", "--", "sleep", "60"}, 15};
      case 1:
        return {{"create"}, 50};
      case 2:
        return {{"rm", some_box()}, 30};
      default:
        return {{"sh", some_box(), "sleep 0.01"}, 15};
    }
  }

  unsigned long seed_ = 0;
  std::mt19937_64 random_;
};
CARREL_AS_BOTH(RandomKill);

TEST_P(RandomKill, TheNextCommandCleansUp) {
  const unsigned long rounds = number_from("CARREL_KILLS", 40);
  ASSERT_EQ(carrel({"run", "--", "true"}).status, 0);
  const std::set<std::string> mounts = mounts_here();
  for (unsigned long round = 0; round < rounds; ++round) {
    const Victim victim = pick_victim();
    const auto microseconds =
        static_cast<useconds_t>(pick(static_cast<unsigned long>(victim.most_ms) * 1000));
    const bool with_keeper = pick(4) == 0;
    {
      Process process(launch(victim.words));
      ::usleep(microseconds);
      if (with_keeper) {
        kill_keepers();
      }
      process.send(SIGKILL);
      process.wait(seconds(5));
    }
    const std::string what = "seed " + std::to_string(seed_) + ", round " + std::to_string(round) +
                             ": " + victim.words[0] + " killed after " +
                             std::to_string(microseconds) + " us" +
                             (with_keeper ? ", with the keeper" : "");
    Run next = carrel({"ls", "--json"});
    ASSERT_EQ(next.status, 0) << what << ": " << next.err;
    ASSERT_EQ(lasting_inconsistencies(GetParam()), "") << what;
    for (const std::string& id : live_boxes(GetParam())) {
      // One whose maker was killed may just be removed: it has ended before its row goes.
      Run said;
      ASSERT_TRUE(eventually(seconds(10),
                             [&] {
                               said = carrel({"sh", id, "echo ok"});
                               return said.out == "ok\n" || live_boxes(GetParam()).count(id) == 0;
                             }))
          << what << ": " << said.err;
    }
  }
  EXPECT_EQ(carrel({"rm", "--all", "--force"}).status, 0);
  EXPECT_TRUE(live_boxes(GetParam()).empty());
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "") << "seed " << seed_;
  sweep_engine();
  EXPECT_EQ(harm_to_mounts(mounts, mounts_here()), "");
  json listed = json::parse(carrel({"ls", "--json"}).out);
  EXPECT_TRUE(listed["sandboxes"].empty()) << listed;
}

// What `create` has told is there, whoever was killed meanwhile; what it has not told may be gone.
TEST_P(RandomKill, WhatCreateToldIsThere) {
  ASSERT_EQ(carrel({"run", "--", "true"}).status, 0);
  for (int round = 0; round < 15; ++round) {
    Process process(launch({"create"}));
    ::usleep(static_cast<useconds_t>(pick(60'000)));
    kill_keepers();
    Run made = process.wait(seconds(20));
    ASSERT_EQ(made.status, 0) << "seed " << seed_ << ": " << made.err;
    Run used = carrel({"sh", made.out.substr(0, 36), "echo ok"});
    ASSERT_EQ(used.out, "ok\n") << "seed " << seed_ << ": " << used.err;
  }
  EXPECT_EQ(live_boxes(GetParam()).size(), 15U);
  EXPECT_EQ(lasting_inconsistencies(GetParam()), "") << "seed " << seed_;
  sweep_engine();
}

}  // namespace
}  // namespace carrel::test
