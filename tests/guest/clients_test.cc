// Clients that come, go, hurry and dawdle.
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "connection.h"
#include "protocol/service.h"
#include "support/fixture.h"

namespace carrel::test {
namespace {

using protocol::EndKind;
using protocol::FrameType;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Clients : public CarrelTest {};
CARREL_AS_BOTH(Clients);

TEST_P(Clients, FortyCommandsOfOneShellRunOneAfterTheOther) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  std::vector<std::uint32_t> channels;
  for (int i = 0; i < 40; ++i) {
    channels.push_back(client.sh("n=$((n+1)); echo " + std::to_string(i) + " $n"));
  }
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(client.wait(channels[static_cast<std::size_t>(i)]).out,
              std::to_string(i) + " " + std::to_string(i + 1) + "\n");
  }
}

TEST_P(Clients, CommandOutlivesItsClientAndCanBeFollowed) {
  Box box(GetParam());
  Connection first(GetParam(), box);
  first.sh("echo early; sleep 2; echo late; echo bad >&2; exit 3");
  EXPECT_EQ(first.list().size(), 1U);
  first.close();
  Connection second(GetParam(), box);
  auto known = second.list();
  ASSERT_EQ(known.size(), 1U);
  const Heard& heard = second.wait(second.follow(known.begin()->first, 0, 0));
  EXPECT_EQ(heard.out, "early\nlate\n");
  EXPECT_EQ(heard.err, "bad\n");
  EXPECT_EQ(heard.end.code, 3U);
  // And again after its end, from the middle.
  const Heard& again = second.wait(second.follow(known.begin()->first, 6, 4));
  EXPECT_EQ(again.out, "late\n");
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(again.end.code, 3U);
}

TEST_P(Clients, SeveralFollowersHearTheSameEachFromItsOwnPlace) {
  Box box(GetParam());
  Connection first(GetParam(), box);
  std::uint32_t channel = first.sh("echo early; sleep 1; echo whole; echo bad >&2; exit 3");
  ASSERT_TRUE(first.wait_for_output(channel, "early\n"));
  Connection second(GetParam(), box);
  auto known = second.list();
  ASSERT_EQ(known.size(), 1U);
  const std::uint64_t id = known.begin()->first;
  std::uint32_t from_start = second.follow(id, 0, 0);
  std::uint32_t from_middle = second.follow(id, 6, 0);
  const Heard& all = second.wait(from_start);
  EXPECT_EQ(all.out, "early\nwhole\n");
  EXPECT_EQ(all.err, "bad\n");
  EXPECT_EQ(all.end.code, 3U);
  EXPECT_EQ(second.wait(from_middle).out, "whole\n");
  EXPECT_EQ(first.wait(channel).out, "early\nwhole\n");
}

// More than the ring has: what the slower one has not read is not overwritten.
TEST_P(Clients, CommandWaitsForTheSlowestOfItsFollowers) {
  Box box(GetParam());
  Connection first(GetParam(), box);
  std::uint32_t channel = first.sh("sleep 2; seq 200000");
  Connection second(GetParam(), box);
  auto known = second.list();
  ASSERT_EQ(known.size(), 1U);
  std::uint32_t watched = second.follow(known.begin()->first, 0, 0);
  std::string all;
  for (int i = 1; i <= 200000; ++i) {
    all += std::to_string(i) + "\n";
  }
  std::string quick;
  std::thread reader([&] { quick = first.wait(channel).out; });
  std::this_thread::sleep_for(seconds(1));
  const Heard& slow = second.wait(watched);
  reader.join();
  EXPECT_EQ(slow.out.size(), all.size());
  EXPECT_TRUE(slow.out == all);
  EXPECT_TRUE(quick == all);
}

TEST_P(Clients, FollowerThatLeavesHoldsNobodyBack) {
  Box box(GetParam());
  Connection first(GetParam(), box);
  std::uint32_t channel = first.sh("sleep 2; seq 200000 | tail -c 700000 | wc -c; seq 100000");
  Connection second(GetParam(), box);
  auto known = second.list();
  ASSERT_EQ(known.size(), 1U);
  (void)second.follow(known.begin()->first, 0, 0);
  std::this_thread::sleep_for(seconds(1));
  second.close();
  EXPECT_EQ(first.wait(channel).end.code, 0U);
}

TEST_P(Clients, AnyFollowerCanEndTheCommandOrGiveItInput) {
  Box box(GetParam());
  Connection first(GetParam(), box);
  std::uint32_t fed =
      first.start({.text = {}, .arguments = {"head", "-n1"}, .flags = protocol::kStartStdin});
  std::uint32_t ended = first.start({.text = {}, .arguments = {"sleep", "20"}});
  Connection second(GetParam(), box);
  auto known = second.list();
  ASSERT_EQ(known.size(), 2U);
  std::uint32_t feeding = second.follow(known.begin()->first, 0, 0);
  std::uint32_t ending = second.follow(known.rbegin()->first, 0, 0);
  second.send(feeding, FrameType::kStdin, "a line\n");
  second.send(ending, FrameType::kKill);
  EXPECT_EQ(second.wait(feeding).out, "a line\n");
  EXPECT_EQ(first.wait(fed).out, "a line\n");
  EXPECT_EQ(second.wait(ending).end.kind, EndKind::kKilled);
  EXPECT_EQ(first.wait(ended).end.kind, EndKind::kKilled);
}

TEST_P(Clients, WaitingCommandCanBeKilledAndNeverRuns) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  std::uint32_t first = client.sh("sleep 4");
  std::uint32_t second = client.sh("touch /tmp/ran");
  std::uint32_t third = client.sh("ls /tmp");
  client.send(second, FrameType::kKill);
  const Heard& killed = client.wait(second);
  EXPECT_EQ(killed.end.kind, EndKind::kKilled);
  EXPECT_LT(killed.took, patient(milliseconds(900)));
  EXPECT_EQ(client.wait(first).end.code, 0U);
  EXPECT_EQ(client.wait(third).out, "");
}

TEST_P(Clients, CommandThatWaitsLongerThanItsTimeoutIsRefused) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  std::uint32_t first = client.sh("sleep 4");
  const Heard& second =
      client.wait(client.start({.text = "echo x", .arguments = {}, .timeout_ms = 300}));
  EXPECT_TRUE(second.refused);
  EXPECT_NE(second.refusal.find("busy"), std::string::npos) << second.refusal;
  EXPECT_EQ(client.wait(first).end.code, 0U);
  EXPECT_EQ(client.run("echo free").out, "free\n");
}

TEST_P(Clients, SlowReaderHoldsTheCommandBackAndLosesNothing) {
  constexpr std::size_t kBytes = 48U << 20;
  Box box(GetParam());
  Connection client(GetParam(), box);
  std::uint32_t channel =
      client.sh("head -c " + std::to_string(kBytes) + " /dev/zero | tr '\\0' x; touch /tmp/done");
  std::this_thread::sleep_for(seconds(1));
  Connection other(GetParam(), box);
  EXPECT_EQ(other.wait(other.start({.text = {}, .arguments = {"ls", "/tmp"}})).out, "");
  EXPECT_LT(std::stol(status_field(box.first_process(), "VmRSS")), 4096) << "KiB";
  const Heard& heard = client.wait(channel, seconds(60));
  EXPECT_EQ(heard.out.size(), kBytes);
  EXPECT_EQ(heard.out.find_first_not_of('x'), std::string::npos);
}

TEST_P(Clients, FloodWithoutAClientKeepsTheNewest) {
  Box box(GetParam());
  Connection first(GetParam(), box);
  first.sh("head -c 20000000 /dev/zero; echo end");
  first.list();
  first.close();
  Connection second(GetParam(), box);
  EXPECT_EQ(second.run("echo after").out, "after\n");
  auto known = second.list();
  ASSERT_GE(known.size(), 1U);
  const Heard& heard = second.wait(second.follow(known.begin()->first, 0, 0));
  EXPECT_GT(heard.out_start, 19'000'000U);
  EXPECT_EQ(heard.out_start + heard.out.size(), 20'000'004U);
  EXPECT_EQ(heard.out.substr(heard.out.size() - 4), "end\n");
}

TEST_P(Clients, InputForAWaitingCommandArrives) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.sh("sleep 0.3");
  std::uint32_t channel =
      client.start({.text = "cat; echo [$?]", .arguments = {}, .flags = protocol::kStartStdin});
  client.send(channel, FrameType::kStdin, "given early");
  client.send(channel, FrameType::kStdinClose);
  EXPECT_EQ(client.wait(channel).out, "given early[0]\n");
  std::uint32_t empty =
      client.start({.text = "cat; echo [$?]", .arguments = {}, .flags = protocol::kStartStdin});
  client.send(empty, FrameType::kStdinClose);
  EXPECT_EQ(client.wait(empty).out, "[0]\n");
}

TEST_P(Clients, InputThatNobodyWantsCostsNothing) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  client.run("true");
  for (bool separate : {false, true}) {
    const std::string script = "exec <&-; sleep 1; echo end";
    Connection::Request request{
        .text = separate ? "" : script, .arguments = {}, .flags = protocol::kStartStdin};
    if (separate) {
      request.arguments = {"bash", "-c", script};
    }
    std::uint32_t channel = client.start(request);
    client.send(channel, FrameType::kStdin, "unwanted");
    long before = cpu_ms(box.first_process());
    EXPECT_EQ(client.wait(channel).out, "end\n");
    EXPECT_LT(cpu_ms(box.first_process()) - before, 200) << "the guest must not spin";
  }
}

// A guest remembers 48 commands and has room for 32 connections.
TEST_P(Clients, NobodyButItsMakerGivesASandboxServices) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  const std::string words("touch\0/workspace/intruded\0", 27);
  protocol::Start start;
  start.timeout_ms = 1000;
  start.arguments = {2, words};
  std::array<unsigned char, 512> program{};
  protocol::Writer inner(program);
  protocol::write_start(inner, start);
  std::array<unsigned char, 1024> frame{};
  protocol::Writer writer(frame);
  protocol::write_service(
      writer, {"intruder", 0, {reinterpret_cast<const char*>(program.data()), inner.size()}, {}});
  ASSERT_TRUE(inner.ok() && writer.ok());
  constexpr std::uint32_t kChannel = 7;
  client.send(kChannel, FrameType::kService,
              {reinterpret_cast<const char*>(frame.data()), writer.size()});
  EXPECT_TRUE(client.wait(kChannel).refused);
  EXPECT_EQ(box.info()["services"], nlohmann::json::array());
  EXPECT_EQ(box.sh("test -e intruded").status, 1);
}

TEST_P(Clients, FileSessionsTakeNobodysPlace) {
  Box box(GetParam());
  Connection client(GetParam(), box);
  EXPECT_EQ(client.run("echo first").out, "first\n");
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(carrel({"file", "stat", box.id(), "."}).status, 0) << i;
  }
  auto known = client.list();
  ASSERT_EQ(known.size(), 1U);
  EXPECT_EQ(client.wait(client.follow(known.begin()->first, 0, 0)).out, "first\n");
}

// A worker that is stopped, or waits for its client, is ended in time, and nobody waits for it.
TEST_P(Clients, AFileSessionEndsWithItsTimeoutAndOthersGoOn) {
  Box box(GetParam());
  Process watch(launch({"file", "watch", "--json", "--timeout", "1", box.id(), "."}));
  ASSERT_TRUE(watch.wait_for_output("watching", seconds(10))) << watch.err();
  Connection client(GetParam(), box);
  EXPECT_EQ(client.run("echo on").out, "on\n");
  const Run ended = watch.wait(seconds(10));
  EXPECT_FALSE(ended.timed_out);
  EXPECT_NE(ended.status, 0);
  EXPECT_EQ(client.run("echo on").out, "on\n");
  EXPECT_EQ(client.list().size(), 2U);
}

}  // namespace
}  // namespace carrel::test
