// Random operations on many sandboxes through the API, against a model of what they should do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "support/host.h"
#include "support/serve.h"

namespace carrel::test {
namespace {

using namespace std::chrono_literals;

// What one sandbox should be.
struct Expected {
  std::string path;
  std::string state = "running";
  std::string workspace = {};  // empty: it goes with the sandbox
  bool comes_back = false;     // when it dies
  bool awaited = false;        // it died: its next use starts it
  std::string file = {};       // what is in its file
  std::string variable = {};   // of its shell
};

class Model : public ServeTest {
 protected:
  static constexpr std::size_t kMostLive = 6;
  using Step = void (Model::*)();

  std::uint32_t any(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }
  std::string word() { return std::to_string(random_()); }
  // One that there is or was.
  Expected* pick() {
    return boxes_.empty() ? nullptr : &boxes_[any(static_cast<std::uint32_t>(boxes_.size()))];
  }
  [[nodiscard]] std::size_t live() const {
    return static_cast<std::size_t>(std::count_if(
        boxes_.begin(), boxes_.end(), [](const Expected& box) { return box.state != "ended"; }));
  }
  void say(const std::string& what) { story_ += what + "\n"; }
  // One that died and is to come back runs again, without what was in its memory.
  static void wake(Expected& box) {
    if (box.awaited) {
      box.awaited = false;
      box.state = "running";
      box.variable.clear();
    }
  }
  // What a request that needs a running sandbox is answered in any other state.
  static int status_in(const Expected& box, int otherwise) {
    return box.state == "ended" ? 410 : box.state == "running" ? otherwise : 409;
  }

  void make() {
    if (live() >= kMostLive) {
      return;
    }
    Expected box;
    json spec = {{"memory", "64m"}};
    if (any(3) != 0) {
      box.workspace = "w" + std::to_string(made_++);
      spec["workspace"] = box.workspace;
      spec["disk"] = "16m";
      box.comes_back = any(2) == 0;
      if (box.comes_back) {
        spec["on_failure"] = "recreate";
      }
    }
    box.path = create(spec);
    say("make " + box.path);
    boxes_.push_back(box);
  }
  void write() {
    if (Expected* box = pick(); box != nullptr) {
      const std::string what = word();
      say("write " + what + " " + box->path);
      wake(*box);
      const ApiAnswer answer =
          post(box->path + "/shell", {{"command", "echo " + what + " > f; x=" + what}});
      EXPECT_EQ(answer.status, status_in(*box, 200)) << answer.body;
      if (answer.status == 200) {
        box->file = what;
        box->variable = what;
      }
    }
  }
  void read() {
    if (Expected* box = pick(); box != nullptr) {
      say("read " + box->path);
      wake(*box);
      const ApiAnswer answer =
          post(box->path + "/shell", {{"command", "cat f 2> /dev/null; echo \"x$x\""}});
      EXPECT_EQ(answer.status, status_in(*box, 200)) << answer.body;
      if (answer.status == 200) {
        const std::string file = box->file.empty() ? "" : box->file + "\n";
        EXPECT_EQ(answer.json()["stdout"], file + "x" + box->variable + "\n");
      }
    }
  }
  void pause() {
    if (Expected* box = pick(); box != nullptr) {
      say("pause " + box->path);
      const bool there = box->state == "running" || box->state == "paused";
      EXPECT_EQ(post(box->path + "/pause", json::object()).status,
                there ? 200 : status_in(*box, 200));
      box->state = there ? "paused" : box->state;
    }
  }
  void resume() {
    if (Expected* box = pick(); box != nullptr) {
      say("resume " + box->path);
      const bool there = box->state == "running" || box->state == "paused";
      EXPECT_EQ(post(box->path + "/resume", json::object()).status,
                there ? 200 : status_in(*box, 200));
      box->state = there ? "running" : box->state;
    }
  }
  void stop() {
    if (Expected* box = pick(); box != nullptr) {
      say("stop " + box->path);
      const int wanted = box->state == "ended" ? 410 : box->workspace.empty() ? 409 : 200;
      const ApiAnswer answer = post(box->path + "/stop?grace_ms=0", json::object());
      EXPECT_EQ(answer.status, wanted) << answer.body;
      if (answer.status == 200) {
        box->state = "stopped";
        box->variable.clear();
        box->awaited = false;
      }
    }
  }
  void start_it() {
    if (Expected* box = pick(); box != nullptr) {
      say("start " + box->path);
      const ApiAnswer answer = post(box->path + "/start", json::object());
      EXPECT_EQ(answer.status, box->state == "ended" ? 410 : 200) << answer.body;
      if (box->state == "stopped") {
        box->state = "running";
        box->awaited = false;
        box->variable.clear();
      }
    }
  }
  void snapshot() {
    Expected* box = pick();
    if (box != nullptr && !box->workspace.empty() &&
        (box->state == "running" || box->state == "paused")) {
      const std::string name = "s" + word();
      say("snapshot " + box->path);
      const ApiAnswer taken = post(box->path + "/snapshots", {{"name", name}});
      EXPECT_EQ(taken.status, 201) << taken.body;
    }
  }
  void fork_it() {
    Expected* box = pick();
    if (box != nullptr && !box->workspace.empty() && live() < kMostLive &&
        (box->state == "running" || box->state == "paused")) {
      Expected fork;
      fork.workspace = "w" + std::to_string(made_++);
      say("fork " + box->path);
      const ApiAnswer made = post(box->path + "/forks", {{"workspace", fork.workspace}});
      ASSERT_EQ(made.status, 201) << made.body;
      fork.path = "/v1/sandboxes/" + made.json()["id"].get<std::string>();
      fork.file = box->file;
      fork.comes_back = box->comes_back;
      boxes_.push_back(fork);
    }
  }
  void remove_it() {
    if (Expected* box = pick(); box != nullptr) {
      say("remove " + box->path);
      EXPECT_EQ(remove(box->path + "?grace_ms=0").status, 204);
      box->state = "ended";
      box->awaited = false;
    }
  }
  void die() {
    if (Expected* box = pick();
        box != nullptr && (box->state == "running" || box->state == "paused")) {
      say("die " + box->path);
      kill_guest(box->path);
      box->state = box->comes_back ? "stopped" : "ended";
      box->awaited = box->comes_back;
      EXPECT_TRUE(eventually(10s, [&] { return get(box->path).json()["state"] == box->state; }))
          << get(box->path).body;
    }
  }
  void kill_daemon() {
    say("kill the daemon");
    daemon_->kill();
    serve();
  }

  // The more often it is here, the likelier it is.
  static std::vector<Step> kinds() {
    return {&Model::make,     &Model::make,     &Model::make,      &Model::write,
            &Model::write,    &Model::write,    &Model::read,      &Model::read,
            &Model::read,     &Model::pause,    &Model::resume,    &Model::resume,
            &Model::stop,     &Model::start_it, &Model::start_it,  &Model::die,
            &Model::snapshot, &Model::fork_it,  &Model::remove_it, &Model::kill_daemon};
  }

  void compare() {
    const json rows = get("/v1/sandboxes?limit=1000").json()["sandboxes"];
    EXPECT_EQ(rows.size(), live());
    for (const json& row : rows) {
      const std::string path = "/v1/sandboxes/" + row["id"].get<std::string>();
      const auto found = std::find_if(boxes_.begin(), boxes_.end(),
                                      [&](const Expected& box) { return box.path == path; });
      ASSERT_NE(found, boxes_.end()) << row;
      EXPECT_EQ(row["state"], found->state) << row;
    }
  }
  // Some that have ended stay, for those who ask for them all the same.
  void forget() {
    constexpr std::size_t kKept = 3;
    const auto ended = std::find_if(boxes_.begin(), boxes_.end(),
                                    [](const Expected& box) { return box.state == "ended"; });
    if (boxes_.size() > live() + kKept) {
      EXPECT_EQ(get(ended->path).json()["state"], "ended");
      if (!ended->workspace.empty()) {
        EXPECT_EQ(carrel({"workspace", "rm", ended->workspace}).status, 0);
      }
      boxes_.erase(ended);
    }
  }

  std::size_t made_ = 0;
  std::mt19937 random_{20260101};
  std::vector<Expected> boxes_;
  std::string story_;
};
CARREL_AS_BOTH(Model);

TEST_P(Model, SandboxesDoWhatTheModelSaysWhateverComesInWhichOrder) {
  const unsigned long steps = number_from("CARREL_MODEL_STEPS", 40);
  random_.seed(static_cast<std::uint32_t>(number_from("CARREL_MODEL_SEED", 7)));
  const std::vector<Step> known = kinds();
  serve();
  for (unsigned long i = 0; i < steps && !HasFailure(); ++i) {
    (this->*known[any(static_cast<std::uint32_t>(known.size()))])();
    compare();
    forget();
  }
  if (HasFailure()) {
    ADD_FAILURE() << "what happened:\n" << story_;
  }
}

}  // namespace
}  // namespace carrel::test
