#include "backends/docker/greeting.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <string>

namespace carrel::docker {
namespace {

using testing::HasSubstr;
using testing::Not;
using Whose = sandbox::SeenKernel::Whose;

constexpr char kSomeBoot[] = "01234567-89ab-cdef-0123-456789abcdef";

std::string greeting_of(const std::string& boot, std::uint32_t landlock) {
  protocol::Greeting greeting;
  std::memcpy(greeting.boot_id, boot.data(), protocol::kBootIdSize);
  greeting.landlock = landlock;
  std::array<unsigned char, protocol::kGreetingSize> data{};
  protocol::write_greeting(greeting, data.data());
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

std::string greeting_frame(const std::string& text) {
  return std::string("\1\0\0\0\0\0\0", 7) + static_cast<char>(text.size()) + text;
}

// What is made of these bytes, at whose end the connection ends. No engine is there to be asked.
Result<protocol::Greeting> greet(const std::string& bytes) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  const UniqueFd own(ends[0]);
  UniqueFd other(ends[1]);
  EXPECT_EQ(::write(other.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  other.reset();
  return await_greeting(Engine::at("unix:///nonexistent/socket").value(), "box", own.get());
}

TEST(DockerGreeting, ItIsTakenInWhateverFramesItComes) {
  const std::string said = greeting_of(kSomeBoot, 3);
  for (const std::string& bytes :
       {greeting_frame(said), greeting_frame(said.substr(0, 5)) + greeting_frame(said.substr(5))}) {
    auto greeting = greet(bytes);
    ASSERT_TRUE(greeting.ok()) << greeting.error().to_string();
    EXPECT_EQ(greeting->boot(), kSomeBoot);
    EXPECT_EQ(greeting->landlock, 3U);
  }
}

TEST(DockerGreeting, AnythingElseIsRefused) {
  const std::string said = greeting_of(kSomeBoot, 3);
  // Whoever does not answer either is gone himself.
  EXPECT_THAT(greet("").error().message, HasSubstr("does not answer"));
  EXPECT_THAT(greet(greeting_frame(said.substr(1))).error().message, HasSubstr("does not answer"));
  EXPECT_THAT(greet(said).error().message, HasSubstr("malformed frame"));
  EXPECT_THAT(greet(greeting_frame(std::string(said.size(), 'x'))).error().message,
              HasSubstr("not the guest"));
  EXPECT_THAT(greet(greeting_frame("x" + said)).error().message, HasSubstr("not the guest"));
  // A frame that promises more.
  std::string longer = greeting_frame(said);
  longer[7] = static_cast<char>(said.size() + 1);
  EXPECT_THAT(greet(longer).error().message, HasSubstr("not the guest"));
}

TEST(DockerGreeting, TheHostsKernelIsKnown) {
  std::string own;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> own;
  for (const auto& [boot, whose] :
       {std::pair(own, Whose::kHosts), std::pair(std::string(kSomeBoot), Whose::kAnothers)}) {
    auto greeting = greet(greeting_frame(greeting_of(boot, 5)));
    ASSERT_TRUE(greeting.ok());
    auto seen = judge_kernel(greeting.value());
    ASSERT_TRUE(seen.ok());
    EXPECT_EQ(seen->whose, whose);
    EXPECT_EQ(seen->landlock_abi, 5);
  }
}

TEST(DockerTerms, OnTheHostsKernelItsNamespacesAreTold) {
  sandbox::RoomRequest request;
  request.trees.push_back({.path = "/home/some body/w", .hidden = {}});
  const auto hosts = contained_terms(request, {Whose::kHosts, 0});
  ASSERT_TRUE(hosts.ok());
  EXPECT_THAT(hosts.value(), testing::StartsWith("once\napart mnt:["));
  for (const char* kind : {"mnt", "pid", "net", "ipc", "uts", "cgroup"}) {
    EXPECT_THAT(hosts.value(), HasSubstr(std::string("\napart ") + kind + ":["));
  }
  EXPECT_THAT(hosts.value(), Not(HasSubstr("machine")));
  request.listener = 0;
  request.network = 0;
  request.id = "box";
  EXPECT_EQ(contained_terms(request, {Whose::kAnothers, 0}).value(),
            "listens\nnetwork box\nmachine\ntree /home/some body/w\n");
}

TEST(DockerTerms, APathThatWouldBeMoreThanALineIsRefused) {
  sandbox::RoomRequest request;
  request.trees.push_back({.path = "/w\nmachine", .hidden = {}});
  EXPECT_EQ(contained_terms(request, {}).error().code, Code::kUnsupported);
  request.trees = {{.path = "/" + std::string(protocol::kMaxContainedTerms, 'x'), .hidden = {}}};
  EXPECT_EQ(contained_terms(request, {}).error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace carrel::docker
