// Clients that share a daemon: what each may have, and that nobody takes it all.
#include "support/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace carrel::test {
namespace {

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

TEST_P(Tenants, HostThatHasTooLittleLeftTakesNoMoreSandboxes) {
  serve({"--reserve", "memory=8000g"});
  const ApiAnswer refused = post("/v1/sandboxes", json::object());
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("this host has too little memory"));
  EXPECT_EQ(post("/v1/run", {{"command", "true"}}).status, 429);
}

}  // namespace
}  // namespace carrel::test
