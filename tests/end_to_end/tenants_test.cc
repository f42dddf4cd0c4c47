// Clients that share a daemon: what each may have, and that nobody takes it all.
#include "support/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace carrel::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Tenants : public TenantsTest {};
CARREL_AS_BOTH(Tenants);

// J18
TEST_P(Tenants, QuotaOfATokenHoldsUnderConcurrentCreation) {
  const std::string small = token("small", {"--quota", "sandboxes=2,memory=600m"});
  const std::string free = token("free");
  serve_tenants();
  std::atomic<int> made = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([&] {
      const ApiAnswer answer = post_as(small, "/v1/sandboxes", {{"memory", "128m"}});
      made += answer.status == 201 ? 1 : 0;
      refused += answer.status == 429 ? 1 : 0;
      if (answer.status == 429) {
        EXPECT_THAT(answer.body, HasSubstr("quota of sandboxes is used up: 2 of 2"));
        EXPECT_TRUE(answer.headers.contains("retry-after"));
      }
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_EQ(made, 2);
  EXPECT_EQ(refused, 4);
  // Others are not concerned.
  EXPECT_EQ(post_as(free, "/v1/sandboxes", json::object()).status, 201);
  EXPECT_EQ(post("/v1/sandboxes", json::object()).status, 201);
  // The next daemon counts the same.
  daemon_->kill();
  serve_tenants();
  EXPECT_EQ(post_as(small, "/v1/sandboxes", json::object()).status, 429);
}

TEST_P(Tenants, MemoryAndCoresAndDiskAreAddedUp) {
  const std::string one = token("one", {"--quota", "memory=600m,cpus=1,disk=3g"});
  serve_tenants();
  EXPECT_THAT(post_as(one, "/v1/sandboxes", {{"cpus", 0.5}, {"memory", "400m"}}).status, 201);
  EXPECT_THAT(post_as(one, "/v1/sandboxes", {{"cpus", 0.5}, {"memory", "300m"}}).body,
              HasSubstr("quota of memory is used up: 400m of 600m, and 300m more"));
  EXPECT_THAT(post_as(one, "/v1/sandboxes", {{"cpus", 0.6}, {"memory", "100m"}}).body,
              HasSubstr("quota of cores"));
  const Run wrong =
      carrel({"serve", "--new-token", "x", "--token-file", tokens(), "--quota", "ram=1g"});
  EXPECT_TRUE(says_one_line(wrong, "there is no quota 'ram=1g'"));
}

// What a client has beside sandboxes.
class Charged : public TenantsTest {
 protected:
  json delete_as(const std::string& token, const std::string& path) {
    const ApiAnswer answer =
        ask(daemon_->port(), {.method = "DELETE", .path = path, .headers = {bearer(token)}});
    return {{"status", answer.status}, {"body", answer.body}};
  }
  // The list of his workspaces.
  json owned(const std::string& token) {
    const ApiAnswer answer =
        ask(daemon_->port(), {.path = "/v1/workspaces", .headers = {bearer(token)}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  std::string made(const std::string& token, const std::string& path, const json& body) {
    const ApiAnswer answer = post_as(token, path, body);
    EXPECT_EQ(answer.status, 201) << path << answer.body;
    return answer.status == 201 ? answer.json()["id"].get<std::string>() : "";
  }
  void does(const std::string& token, const std::string& id, const std::string& command) {
    const ApiAnswer answer =
        post_as(token, "/v1/sandboxes/" + id + "/shell", {{"command", command}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.json().value("exit_code", -1), 0) << answer.body;
  }
  // What the host has given to what is in a folder of the state directory.
  std::uint64_t used(const std::string& folder) const {
    std::uint64_t blocks = 0;
    const std::string top = place().home(GetParam()) + "/" + folder;
    for (const auto& one : fs::recursive_directory_iterator(top)) {
      struct stat info{};
      blocks +=
          ::lstat(one.path().c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_blocks) : 0;
    }
    return blocks * 512;
  }
  std::size_t entries(const std::string& folder) const {
    const fs::directory_iterator all(place().home(GetParam()) + "/" + folder);
    return static_cast<std::size_t>(std::distance(fs::begin(all), fs::end(all)));
  }
};
CARREL_AS_BOTH(Charged);

TEST_P(Charged, ForksLeaveNothingThatNobodyOwns) {
  const std::string one = token("one", {"--quota", "disk=100m"});
  const std::string other = token("other");
  serve_tenants();
  const std::string box = made(one, "/v1/sandboxes", {{"disk", "20m"}});
  does(one, box, "head -c 1M /dev/urandom > f");
  for (int i = 0; i < 6; ++i) {
    const std::string fork = made(one, "/v1/sandboxes/" + box + "/forks", json::object());
    does(one, fork, "echo x > g");
    const json there = owned(one);
    ASSERT_EQ(there["workspaces"].size(), 2U) << there;
    EXPECT_EQ(there["workspaces"][0]["owner"], "one");
    EXPECT_EQ(there["workspaces"][0]["goes_with"], fork);
    EXPECT_EQ(delete_as(one, "/v1/sandboxes/" + fork)["status"], 204);
  }
  const json left = owned(one);
  ASSERT_EQ(left["workspaces"].size(), 1U) << left;
  EXPECT_EQ(left["workspaces"][0]["goes_with"], box);
  EXPECT_EQ(left["workspaces"][0]["snapshots"].size(), 1U) << left;
  EXPECT_EQ(left["workspaces"][0]["snapshots"][0]["asked_for"], false);
  EXPECT_GE(left["snapshots_bytes"], 1 << 20);
  EXPECT_EQ(left["quota_bytes"], 100 << 20);
  EXPECT_EQ(owned(other)["workspaces"].size(), 0U);
  EXPECT_EQ(delete_as(one, "/v1/sandboxes/" + box)["status"], 204);
  EXPECT_EQ(owned(one)["workspaces"].size(), 0U);
  EXPECT_EQ(entries("workspaces"), 0U);
  EXPECT_EQ(entries("layers"), 0U);
}

TEST_P(Charged, SnapshotsCountOutliveTheirSandboxAndAreRemoved) {
  const std::string one = token("one", {"--quota", "disk=40m"});
  const std::string other = token("other");
  serve_tenants();
  const std::string box = made(one, "/v1/sandboxes", {{"disk", "20m"}});
  const std::string snapshots = "/v1/sandboxes/" + box + "/snapshots";
  constexpr std::int64_t kFile = 8 << 20;
  std::vector<std::string> ids;
  for (int i = 1; i <= 2; ++i) {
    does(one, box, "head -c 8M /dev/urandom > f");
    ids.push_back(made(one, snapshots, json::object()));
    const std::int64_t bytes = owned(one)["snapshots_bytes"];
    EXPECT_GE(bytes, i * kFile);
    EXPECT_LE(bytes, i * kFile * 105 / 100);
    EXPECT_GE(static_cast<std::uint64_t>(bytes), used("layers"));
  }
  const std::uint64_t before = used("layers");
  does(one, box, "head -c 8M /dev/urandom > f");
  for (const char* what : {"/snapshots", "/forks"}) {
    const ApiAnswer refused = post_as(one, "/v1/sandboxes/" + box + what, json::object());
    EXPECT_EQ(refused.status, 429) << what << refused.body;
    EXPECT_EQ(used("layers"), before) << "nothing is left of it";
  }
  // Nor of one that cannot be had for another reason.
  does(one, box, "rm f; echo x > f");
  const json name = {{"name", "one"}};
  EXPECT_EQ(post_as(one, snapshots, name).status, 201);
  const std::uint64_t named = used("layers");
  does(one, box, "head -c 100k /dev/urandom > g");
  EXPECT_EQ(post_as(one, snapshots, name).status, 409);
  EXPECT_EQ(used("layers"), named);
  const json there = owned(one);
  EXPECT_EQ(
      delete_as(one, "/v1/snapshots/" +
                         there["workspaces"][0]["snapshots"][2]["id"].get<std::string>())["status"],
      204);
  EXPECT_EQ(delete_as(one, "/v1/sandboxes/" + box)["status"], 204);
  json left = owned(one);
  ASSERT_EQ(left["workspaces"].size(), 1U) << left;
  EXPECT_EQ(left["workspaces"][0]["snapshots"].size(), 2U) << left;
  // The next daemon counts the same.
  daemon_->kill();
  serve_tenants();
  EXPECT_EQ(post_as(one, "/v1/sandboxes", {{"disk", "25m"}}).status, 429);
  const std::string workspace = left["workspaces"][0]["name"];
  for (const std::string& path : {"/v1/snapshots/" + ids[1], "/v1/workspaces/" + workspace}) {
    EXPECT_EQ(delete_as(other, path)["status"], 404) << path;
  }
  EXPECT_EQ(delete_as(one, "/v1/snapshots/" + ids[1])["status"], 204);
  EXPECT_EQ(delete_as(one, "/v1/snapshots/" + ids[1])["status"], 404);
  EXPECT_LE(owned(one)["snapshots_bytes"], kFile * 105 / 100);
  EXPECT_LT(used("layers"), before);
  // The older one is there still: it stood on no other.
  const std::string next = made(one, "/v1/sandboxes", {{"disk", "25m"}});
  EXPECT_EQ(delete_as(one, "/v1/workspaces/" + workspace)["status"], 204);
  EXPECT_EQ(owned(one)["workspaces"].size(), 0U);
  EXPECT_EQ(entries("layers"), 0U);
  // What a sandbox has is not taken from it.
  made(one, "/v1/sandboxes/" + next + "/snapshots", json::object());
  const std::string in_use = owned(one)["workspaces"][0]["name"];
  EXPECT_EQ(delete_as(one, "/v1/workspaces/" + in_use)["status"], 409);
}

TEST_P(Charged, RequestsThatComeTogetherDoNotOverdrawTheQuota) {
  const std::string one = token("one", {"--quota", "disk=50m"});
  serve_tenants();
  std::vector<std::string> boxes;
  for (int i = 0; i < 2; ++i) {
    boxes.push_back(made(one, "/v1/sandboxes", {{"disk", "10m"}}));
    does(one, boxes.back(), "head -c 8M /dev/urandom > f");
  }
  std::atomic<int> taken = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const char* const what = i % 4 == 3 ? "/forks" : "/snapshots";
      const ApiAnswer answer = post_as(
          one, "/v1/sandboxes/" + boxes[static_cast<std::size_t>(i % 2)] + what, json::object());
      // Two of one sandbox at a time can be in each other's way.
      EXPECT_THAT(answer.status, testing::AnyOf(201, 409, 429)) << answer.body;
      taken += answer.status == 201 ? 1 : 0;
    });
  }
  for (std::thread& client : clients) {
    client.join();
  }
  EXPECT_GE(taken, 1);
  const json there = owned(one);
  const std::uint64_t layers = there["snapshots_bytes"];
  const std::uint64_t workspaces = there["workspaces_bytes"];
  EXPECT_LE(layers + workspaces + (20U << 20), 50U << 20) << there;
  EXPECT_LE(used("layers"), layers);
}

TEST_P(Charged, TheOperatorSeesAndRemovesWhatEverybodyHas) {
  const std::string one = token("one");
  serve_tenants();
  const std::string box = made(one, "/v1/sandboxes", {{"disk", "20m"}});
  const std::string id = made(one, "/v1/sandboxes/" + box + "/snapshots", json::object());
  ASSERT_EQ(carrel({"run", "--workspace", "mine", "--disk", "20m", "--", "true"}).status, 0);
  EXPECT_EQ(owned(one)["workspaces"].size(), 1U);
  const json all = get("/v1/workspaces").json();
  ASSERT_EQ(all["workspaces"].size(), 2U) << all;
  EXPECT_EQ(all["workspaces"][0]["name"], "mine");
  EXPECT_EQ(all["workspaces"][0]["owner"], "");
  EXPECT_EQ(all["workspaces"][1]["owner"], "one");
  EXPECT_EQ(delete_as(one, "/v1/workspaces/mine")["status"], 404);
  EXPECT_EQ(remove("/v1/snapshots/" + id).status, 204);
  EXPECT_EQ(remove("/v1/workspaces/mine").status, 204);
  EXPECT_EQ(get("/v1/workspaces").json()["workspaces"].size(), 1U);
}

// Whatever a client does in whichever order, he is charged for what is there, and has no more than
// his quota.
TEST_P(Charged, WhatIsUsedIsNeverMoreThanWhatIsCharged) {
  constexpr std::int64_t kQuota = 150 << 20;
  const std::string one = token("one", {"--quota", "disk=150m"});
  serve_tenants();
  const char* const given = std::getenv("CARREL_OPERATIONS");
  const int operations = given == nullptr ? 60 : std::atoi(given);
  const char* const begun = std::getenv("CARREL_SEED");
  std::mt19937 random(begun == nullptr ? 1 : static_cast<unsigned>(std::atoi(begun)));
  std::vector<std::string> boxes;
  const auto any = [&] { return boxes[random() % boxes.size()]; };
  std::map<int, int> answers;
  for (int i = 0; i < operations; ++i) {
    const std::uint64_t what = boxes.empty() ? 0 : random() % 10;
    const json there = owned(one);
    ApiAnswer answer;
    if (what == 0) {
      answer = post_as(one, "/v1/sandboxes", {{"disk", "10m"}});
    } else if (what <= 2) {
      answer = post_as(one, "/v1/sandboxes/" + any() + "/forks", json::object());
    } else if (what <= 4) {
      const std::string folder = "d" + std::to_string(random() % 9);
      const std::string bytes = std::to_string(random() % 4'000'000);
      const std::string command = "mkdir -p " + folder + " && head -c " + bytes +
                                  " /dev/urandom > " + folder + "/f || true";
      answer = post_as(one, "/v1/sandboxes/" + any() + "/shell", {{"command", command}});
    } else if (what <= 6) {
      answer = post_as(one, "/v1/sandboxes/" + any() + "/snapshots", json::object());
    } else if (what == 7) {
      const std::string gone = any();
      std::erase(boxes, gone);
      EXPECT_EQ(delete_as(one, "/v1/sandboxes/" + gone)["status"], 204);
    } else if (!there["workspaces"].empty()) {
      const json& workspace = there["workspaces"][random() % there["workspaces"].size()];
      const json& snapshots = workspace["snapshots"];
      const bool whole = what == 8 || snapshots.empty();
      const std::string path = whole ? "/v1/workspaces/" + workspace["name"].get<std::string>()
                                     : "/v1/snapshots/" + snapshots[0]["id"].get<std::string>();
      EXPECT_THAT(delete_as(one, path)["status"].get<int>(), testing::AnyOf(204, 409)) << path;
    }
    ++answers[answer.status];
    EXPECT_THAT(answer.status, testing::AnyOf(0, 200, 201, 429)) << what << answer.body;
    if (what <= 2 && answer.status == 201) {
      boxes.push_back(answer.json()["id"]);
    }
    const json charged = owned(one);
    const std::uint64_t layers = charged["snapshots_bytes"];
    const std::uint64_t workspaces = charged["workspaces_bytes"];
    ASSERT_LE(used("layers"), layers) << i << " " << what << charged;
    ASSERT_GE(used("layers") * 105 / 100 + 4096, layers) << i << " " << what << charged;
    ASSERT_LE(used("workspaces"), workspaces) << i << " " << what << charged;
    ASSERT_LE(layers + workspaces, kQuota) << i << " " << what << charged;
  }
  EXPECT_GT(answers[201], 5);
  for (const std::string& id : boxes) {
    EXPECT_EQ(delete_as(one, "/v1/sandboxes/" + id)["status"], 204);
  }
  const json left = owned(one);
  for (const json& workspace : left["workspaces"]) {
    const std::string path = "/v1/workspaces/" + workspace["name"].get<std::string>();
    EXPECT_EQ(delete_as(one, path)["status"], 204) << path;
  }
  EXPECT_EQ(entries("workspaces"), 0U);
  EXPECT_EQ(entries("layers"), 0U);
}

TEST_P(Tenants, HostThatHasTooLittleLeftTakesNoMoreSandboxes) {
  serve({"--reserve", "memory=8000g"});
  const ApiAnswer refused = post("/v1/sandboxes", json::object());
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("this host has too little memory"));
  EXPECT_EQ(post("/v1/run", {{"command", "true"}}).status, 429);
}

}  // namespace
}  // namespace carrel::test
