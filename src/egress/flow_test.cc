#include "egress/flow.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unix_socket.h"
#include "dns/message.h"
#include "egress/dns_message.h"
#include "egress/io.h"
#include "protocol/outward.h"

namespace carrel::egress {
namespace {

using protocol::Outward;
using protocol::OutwardKind;

std::string text_of(const Outward& outward) {
  std::string text(protocol::kOutwardSize, '\0');
  protocol::write_outward(outward, reinterpret_cast<unsigned char*>(text.data()));
  return text;
}

struct Ends {
  UniqueFd one;
  UniqueFd other;
};

Ends make_ends(int family, int type) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(family, type | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Task<void> serve(std::shared_ptr<Room> room, std::shared_ptr<Watched> porter, Status& there) {
  there = co_await await_machine(*porter);
  if (there.ok()) {
    co_await take_flows(room, porter);
  }
  room->service().loop.stop();
}

// A porter, and an egress process that serves its machine in a thread of its own.
class MachineFlows : public testing::Test {
 protected:
  MachineFlows() {
    std::string name = testing::TempDir() + "/flowsXXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    Ends ends = make_ends(AF_UNIX, SOCK_SEQPACKET);
    porter_ = std::move(ends.one);
    ::fcntl(ends.other.get(), F_SETFL, O_NONBLOCK);
    thread_ = std::thread([this, egress = ends.other.release()] { run(egress); });
  }
  ~MachineFlows() override {
    finish();
    std::filesystem::remove_all(directory_);
  }

  void run(int egress) {
    const UniqueFd place(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Service service;
    const auto policy = policy::parse_network({"network", "allow=example.org,http:192.0.2.7"});
    auto room = std::make_shared<Room>(service, "test", policy.value(),
                                       std::move(SyntheticNames::open(place.get()).value()),
                                       std::move(KeptUsage::open(place.get()).value()));
    auto porter = std::make_shared<Watched>(service.loop, UniqueFd(egress));
    spawn(serve(room, porter, there_));
    EXPECT_TRUE(service.loop.run().ok());
    connections_ = room->usage().connections;
    room->close();
  }

  void say(const std::string& text, const std::vector<int>& descriptors = {}) const {
    EXPECT_EQ(send_with(porter_.get(), text, descriptors, MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // A connection that is handed over with these words; its other end.
  UniqueFd connect(const Outward& outward) const {
    Ends ends = make_ends(AF_UNIX, SOCK_STREAM);
    say(text_of(outward), {ends.other.get()});
    return std::move(ends.one);
  }
  static std::string hear(int fd) {
    std::string text(4096, '\0');
    pollfd look{fd, POLLIN, 0};
    const ssize_t n = ::poll(&look, 1, 5000) == 1 ? ::read(fd, text.data(), text.size()) : -1;
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }
  // Whether the egress process has stopped to listen.
  bool has_left() const {
    pollfd look{porter_.get(), POLLIN, 0};
    return ::poll(&look, 1, 5000) == 1 && (look.revents & POLLHUP) != 0;
  }
  void finish() {
    porter_.reset();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  std::string directory_;
  UniqueFd porter_;
  Status there_;
  std::uint64_t connections_ = 0;
  std::thread thread_;
};

TEST_F(MachineFlows, AreDecidedOnByWhereTheyAreMeantToGo) {
  say(std::string(protocol::kOutwardReady));
  const UniqueFd metadata = connect({OutwardKind::kRedirected, 4, {169, 254, 169, 254}, 80});
  const std::string request = "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n";
  ASSERT_EQ(::write(metadata.get(), request.data(), request.size()),
            static_cast<ssize_t>(request.size()));
  EXPECT_TRUE(hear(metadata.get()).starts_with("HTTP/1.1 403 "));
  const UniqueFd proxied = connect({OutwardKind::kProxy, 0, {}, 0});
  const std::string ask = "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n";
  ASSERT_EQ(::write(proxied.get(), ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
  EXPECT_TRUE(hear(proxied.get()).starts_with("HTTP/1.1 403 "));
  finish();
  EXPECT_TRUE(there_.ok());
  EXPECT_EQ(connections_, 2U);
}

TEST_F(MachineFlows, LookupsAreAnsweredInTheirOrderAndAreNoConnections) {
  say(std::string(protocol::kOutwardReady));
  UniqueFd lookups = connect({OutwardKind::kLookups, 0, {}, 0});
  const auto ask = [&](std::uint16_t id, const char* name) {
    const std::vector<std::uint8_t> question =
        dns::write_lookup({id, policy::canonical_host(name).value(), dns::RecordType::kA});
    std::string text = {static_cast<char>(question.size() >> 8),
                        static_cast<char>(question.size())};
    text.append(question.begin(), question.end());
    ASSERT_EQ(::write(lookups.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
    const std::string answer = hear(lookups.get());
    ASSERT_GT(answer.size(), 6U);
    EXPECT_EQ(static_cast<unsigned char>(answer[3]), id);
    const int code = answer[5] & 0xf;
    EXPECT_EQ(code, std::string(name) == "example.org" ? 0 : 3);
  };
  ask(7, "example.org");
  ask(8, "evil.test");
  lookups.reset();
  // Whoever is answered came after the end of the lookups.
  const UniqueFd proxied = connect({OutwardKind::kProxy, 0, {}, 0});
  const std::string last = "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n";
  ASSERT_EQ(::write(proxied.get(), last.data(), last.size()), static_cast<ssize_t>(last.size()));
  EXPECT_TRUE(hear(proxied.get()).starts_with("HTTP/1.1 403 "));
  finish();
  EXPECT_EQ(connections_, 1U) << "only the last one";
}

TEST_F(MachineFlows, AnotherKindOfSocketEndsIt) {
  say(std::string(protocol::kOutwardReady));
  const UniqueFd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  say(text_of({OutwardKind::kProxy, 0, {}, 0}), {tcp.get()});
  EXPECT_TRUE(has_left());
}

TEST_F(MachineFlows, WordsThatAreNoneEndIt) {
  say(std::string(protocol::kOutwardReady));
  say("something else that is said");
  EXPECT_TRUE(has_left());
}

TEST_F(MachineFlows, AConnectionThatIsMissingEndsIt) {
  say(std::string(protocol::kOutwardReady));
  say(text_of({OutwardKind::kProxy, 0, {}, 0}));
  EXPECT_TRUE(has_left());
}

TEST_F(MachineFlows, BeforeTheMachineHasANetworkThereAreNone) {
  const UniqueFd early = connect({OutwardKind::kProxy, 0, {}, 0});
  EXPECT_TRUE(has_left());
  finish();
  EXPECT_FALSE(there_.ok());
}

}  // namespace
}  // namespace carrel::egress
