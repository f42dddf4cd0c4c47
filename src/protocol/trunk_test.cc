#include "protocol/trunk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "protocol/outward.h"

namespace carrel::protocol {
namespace {

struct Pair {
  int one = -1;
  int other = -1;
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    one = ends[0];
    other = ends[1];
  }
};

// A host's end and a machine's, with a line between them.
class TrunkTest : public testing::Test {
 protected:
  TrunkTest() {
    ::fcntl(line_.one, F_SETFL, O_NONBLOCK);
    ::fcntl(line_.other, F_SETFL, O_NONBLOCK);
    Trunk::Owner keeper;
    keeper.reach = [](void* self, const TrunkLabel& label) {
      auto* const test = static_cast<TrunkTest*>(self);
      test->labels_.emplace_back(label.detail);
      const Pair pair;
      test->reached_ = pair.one;
      return label.detail == "r" ? -1 : pair.other;
    };
    keeper.self = this;
    host_->begin(TrunkEnd::kHost, line_.one, host_first_.other, keeper);
    Trunk::Owner owner;
    owner.open = [](void* self) {
      const Pair pair;
      static_cast<TrunkTest*>(self)->opened_ = pair.one;
      return pair.other;
    };
    owner.self = this;
    machine_->begin(TrunkEnd::kMachine, line_.other, machine_first_.other, owner);
  }
  ~TrunkTest() override {
    for (const int fd :
         {line_.one, line_.other, host_first_.one, machine_first_.one, opened_, reached_}) {
      if (fd >= 0) {
        ::close(fd);
      }
    }
  }

  bool serve(int rounds = 20) {
    unsigned ready = 0;
    bool open = true;
    for (int i = 0; i < rounds; ++i) {
      open = host_->serve(nullptr, 0, ready, 0) && machine_->serve(nullptr, 0, ready, 0) && open;
    }
    return open;
  }

  // What the host's end makes of these bytes on its line.
  bool host_takes(const TrunkFrame& frame, std::size_t payload) {
    std::string bytes(kTrunkHeader + payload, 'x');
    write_trunk_header(frame, reinterpret_cast<unsigned char*>(bytes.data()));
    EXPECT_EQ(::write(line_.other, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    unsigned ready = 0;
    return host_->serve(nullptr, 0, ready, 0) && !host_->broken();
  }

  static std::string read_from(int fd) {
    std::string text(1U << 20, '\0');
    const ssize_t n = ::recv(fd, text.data(), text.size(), MSG_DONTWAIT);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }

  Pair line_;
  Pair host_first_;
  Pair machine_first_;
  int opened_ = -1;
  int reached_ = -1;
  std::vector<std::string> labels_;
  std::unique_ptr<Trunk> host_ = std::make_unique<Trunk>();
  std::unique_ptr<Trunk> machine_ = std::make_unique<Trunk>();
};

TEST_F(TrunkTest, BytesOfTheFirstChannelGoBothWays) {
  ASSERT_EQ(::write(host_first_.one, "down", 4), 4);
  ASSERT_EQ(::write(machine_first_.one, "up", 2), 2);
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(machine_first_.one), "down");
  EXPECT_EQ(read_from(host_first_.one), "up");
}

TEST_F(TrunkTest, AConnectionIsOpenedCarriedAndClosed) {
  const Pair client;
  ASSERT_TRUE(host_->carry(client.other));
  ASSERT_EQ(::write(client.one, "question", 8), 8);
  EXPECT_TRUE(serve());
  ASSERT_GE(opened_, 0);
  EXPECT_EQ(read_from(opened_), "question");
  ASSERT_EQ(::write(opened_, "answer", 6), 6);
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(client.one), "answer");
  // What was said before the end arrives.
  ASSERT_EQ(::write(opened_, "bye", 3), 3);
  ::close(opened_);
  opened_ = -1;
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(client.one), "bye");
  char byte = 0;
  EXPECT_EQ(::recv(client.one, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_FALSE(host_->carries(1));
  EXPECT_FALSE(machine_->carries(1));
  ::close(client.one);
}

TEST_F(TrunkTest, EachSideOfAConnectionInCanEndWhatItSays) {
  const Pair client;
  ASSERT_TRUE(host_->carry(client.other));
  ASSERT_EQ(::write(client.one, "question", 8), 8);
  ASSERT_EQ(::shutdown(client.one, SHUT_WR), 0);
  EXPECT_TRUE(serve());
  ASSERT_GE(opened_, 0);
  EXPECT_EQ(read_from(opened_), "question");
  char byte = 0;
  EXPECT_EQ(::recv(opened_, &byte, 1, MSG_DONTWAIT), 0);
  ASSERT_EQ(::write(opened_, "answer", 6), 6);
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(client.one), "answer");
  EXPECT_TRUE(host_->carries(1));
  ::close(opened_);
  opened_ = -1;
  EXPECT_TRUE(serve());
  EXPECT_EQ(::recv(client.one, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_FALSE(host_->carries(1));
  EXPECT_FALSE(machine_->carries(1));
  ::close(client.one);
}

TEST_F(TrunkTest, WhoLeavesAfterHisLastWordsIsNoticed) {
  const Pair client;
  ASSERT_TRUE(host_->carry(client.other));
  ASSERT_EQ(::shutdown(client.one, SHUT_WR), 0);
  EXPECT_TRUE(serve());
  ASSERT_GE(opened_, 0);
  EXPECT_TRUE(host_->carries(1));
  ::close(client.one);
  EXPECT_TRUE(serve());
  pollfd left{opened_, 0, 0};
  EXPECT_EQ(::poll(&left, 1, 0), 1);
  ::close(opened_);
  opened_ = -1;
  EXPECT_TRUE(serve());
  EXPECT_FALSE(host_->carries(1));
  EXPECT_FALSE(machine_->carries(1));
}

TEST_F(TrunkTest, WhoDoesNotReadHoldsUpNobodyElse) {
  const Pair client;
  ASSERT_TRUE(host_->carry(client.other));
  EXPECT_TRUE(serve());
  ASSERT_GE(opened_, 0);
  const std::string much(1U << 20, 'm');
  std::size_t sent = 0;
  for (int i = 0; i < 400; ++i) {
    const ssize_t n = ::send(opened_, much.data(), much.size(), MSG_DONTWAIT);
    sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    EXPECT_TRUE(serve(1));
  }
  ASSERT_EQ(::write(machine_first_.one, "still", 5), 5);
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(host_first_.one), "still");
  // And nothing of it is lost.
  std::size_t got = 0;
  for (int i = 0; i < 2000 && got < sent; ++i) {
    got += read_from(client.one).size();
    EXPECT_TRUE(serve(1));
  }
  EXPECT_EQ(got, sent);
  ::close(client.one);
}

TEST_F(TrunkTest, MoreThanWasGrantedBreaksIt) {
  // Nobody reads on this side, so nothing is taken after the socket is full.
  const int small = 4096;
  ::setsockopt(host_first_.other, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  bool taken = true;
  for (int i = 0; i < 64 && taken; ++i) {
    taken = host_takes({TrunkKind::kData, 0, kTrunkPiece}, kTrunkPiece);
  }
  EXPECT_FALSE(taken);
  EXPECT_TRUE(host_->broken());
}

TEST_F(TrunkTest, WhatIsNoFrameBreaksIt) {
  const TrunkFrame kTable[] = {
      {static_cast<TrunkKind>(0), 0, 0},
      {static_cast<TrunkKind>(9), 0, 0},
      {TrunkKind::kOpen, 1, 0},
      {TrunkKind::kData, kTrunkChannels, 1},
      {TrunkKind::kData, 0, 0},
      {TrunkKind::kData, 0, kTrunkPiece + 1},
      {TrunkKind::kCredit, 0, 1},
      {TrunkKind::kCredit, 0, kTrunkWindow + 1},
      {TrunkKind::kClose, 3, 0},
      {TrunkKind::kData, 3, 5},
      {TrunkKind::kHello, 1, 0},
      {TrunkKind::kReach, 1, 2},
      {TrunkKind::kReach, kTrunkInward, 0},
      {TrunkKind::kReach, kTrunkInward, kTrunkLabel + 1},
      {TrunkKind::kReach, kTrunkChannels, 2},
      {TrunkKind::kData, kTrunkInward, 5},
      {TrunkKind::kEnd, 0, 0},
      {TrunkKind::kEnd, kTrunkInward, 0},
  };
  for (const TrunkFrame& frame : kTable) {
    const Pair line;
    const Pair first;
    auto host = std::make_unique<Trunk>();
    host->begin(TrunkEnd::kHost, line.one, first.other, {});
    std::array<unsigned char, kTrunkHeader> head{};
    write_trunk_header(frame, head.data());
    ASSERT_EQ(::write(line.other, head.data(), head.size()), static_cast<ssize_t>(head.size()));
    ::fcntl(line.one, F_SETFL, O_NONBLOCK);
    unsigned ready = 0;
    EXPECT_FALSE(host->serve(nullptr, 0, ready, 0)) << static_cast<int>(frame.kind);
    EXPECT_TRUE(host->broken());
    for (const int fd : {line.one, line.other, first.one, first.other}) {
      ::close(fd);
    }
  }
}

TEST_F(TrunkTest, TheMachineSaysThatItIsThereAndThatItsGuestHasGone) {
  machine_->say(TrunkKind::kHello);
  EXPECT_TRUE(serve());
  EXPECT_TRUE(host_->heard_hello());
  ASSERT_EQ(::write(machine_first_.one, "last", 4), 4);
  ::close(machine_first_.one);
  machine_first_.one = -1;
  EXPECT_TRUE(serve());
  EXPECT_TRUE(machine_->is_idle());
  machine_->say(TrunkKind::kGone);
  EXPECT_TRUE(serve());
  EXPECT_TRUE(host_->heard_gone());
  EXPECT_EQ(read_from(host_first_.one), "last");
}

TEST_F(TrunkTest, AMachineReachesWhatTheHostHasForIt) {
  const Pair inside;
  ASSERT_TRUE(machine_->carry_out(inside.other, {TrunkPurpose::kFiles, "7"}));
  ASSERT_EQ(::write(inside.one, "request", 7), 7);
  EXPECT_TRUE(serve());
  EXPECT_EQ(labels_, std::vector<std::string>{"7"});
  ASSERT_GE(reached_, 0);
  EXPECT_EQ(read_from(reached_), "request");
  ASSERT_EQ(::write(reached_, "answer", 6), 6);
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(inside.one), "answer");
  ::close(inside.one);
  EXPECT_TRUE(serve());
  char byte = 0;
  EXPECT_EQ(::recv(reached_, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_FALSE(host_->carries(kTrunkInward));
  EXPECT_FALSE(machine_->carries(kTrunkInward));
}

TEST_F(TrunkTest, WhatTheHostDoesNotHaveIsClosed) {
  const Pair inside;
  ASSERT_TRUE(machine_->carry_out(inside.other, {TrunkPurpose::kFiles, "r"}));
  EXPECT_TRUE(serve());
  char byte = 0;
  EXPECT_EQ(::recv(inside.one, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_FALSE(host_->broken());
  EXPECT_FALSE(machine_->carries(kTrunkInward));
  ::close(inside.one);
}

TEST_F(TrunkTest, ALabelThatIsNoneBreaksIt) {
  for (const std::string& label : {std::string("\0x", 2), std::string("\x09x"), std::string("\1"),
                                   std::string("\1xy"), std::string(kTrunkLabel + 1, '\1')}) {
    TrunkLabel parsed;
    EXPECT_FALSE(parse_trunk_label(label, parsed)) << label;
  }
  // The bytes of host_takes() are no label.
  EXPECT_FALSE(host_takes({TrunkKind::kReach, kTrunkInward, 2}, 2));
  EXPECT_TRUE(host_->broken());
  EXPECT_TRUE(labels_.empty());
}

TEST_F(TrunkTest, AConnectionOutSaysWhereItIsMeantToGo) {
  TrunkLabel parsed;
  std::string label(1 + kOutwardSize, '\0');
  label[0] = static_cast<char>(TrunkPurpose::kConnection);
  EXPECT_FALSE(parse_trunk_label(label, parsed));
  write_outward({OutwardKind::kRedirected, 4, {198, 18, 0, 7}, 443},
                reinterpret_cast<unsigned char*>(label.data()) + 1);
  ASSERT_TRUE(parse_trunk_label(label, parsed));
  EXPECT_EQ(parsed.detail, label.substr(1));
  EXPECT_FALSE(parse_trunk_label(label + "x", parsed));
  EXPECT_TRUE(parse_trunk_label("\3", parsed));
  EXPECT_FALSE(parse_trunk_label("\3x", parsed));
}

TEST_F(TrunkTest, EachSideOfAConnectionOutCanEndWhatItSays) {
  const Pair inside;
  ASSERT_TRUE(machine_->carry_out(inside.other, {TrunkPurpose::kFiles, "7"}));
  ASSERT_EQ(::write(inside.one, "request", 7), 7);
  ASSERT_EQ(::shutdown(inside.one, SHUT_WR), 0);
  EXPECT_TRUE(serve());
  EXPECT_EQ(read_from(reached_), "request");
  char byte = 0;
  EXPECT_EQ(::recv(reached_, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_TRUE(host_->carries(kTrunkInward));
  // The other one still speaks, as much as it wants.
  const std::string much(150'000, 'm');
  std::size_t sent = 0;
  std::size_t got = 0;
  for (int i = 0; i < 1000 && got < much.size(); ++i) {
    const ssize_t n = ::send(reached_, much.data() + sent, much.size() - sent, MSG_DONTWAIT);
    sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    EXPECT_TRUE(serve(1));
    got += read_from(inside.one).size();
  }
  EXPECT_EQ(got, much.size());
  ::close(reached_);
  reached_ = -1;
  EXPECT_TRUE(serve());
  EXPECT_EQ(::recv(inside.one, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_FALSE(host_->carries(kTrunkInward));
  EXPECT_FALSE(machine_->carries(kTrunkInward));
  ::close(inside.one);
  // After its end nothing more is heard of a side.
  EXPECT_FALSE(host_takes({TrunkKind::kEnd, kTrunkInward, 0}, 0));
}

TEST_F(TrunkTest, AfterItsEndNothingMoreComesOfASide) {
  const Pair inside;
  ASSERT_TRUE(machine_->carry_out(inside.other, {TrunkPurpose::kFiles, "7"}));
  EXPECT_TRUE(serve());
  EXPECT_TRUE(host_takes({TrunkKind::kEnd, kTrunkInward, 0}, 0));
  EXPECT_FALSE(host_takes({TrunkKind::kData, kTrunkInward, 1}, 1));
  EXPECT_TRUE(host_->broken());
  ::close(inside.one);
}

TEST_F(TrunkTest, AChannelThatIsInUseIsNotReachedAgain) {
  const Pair inside;
  ASSERT_TRUE(machine_->carry_out(inside.other, {TrunkPurpose::kFiles, "7"}));
  EXPECT_TRUE(serve());
  EXPECT_FALSE(host_takes({TrunkKind::kReach, kTrunkInward, 2}, 0));
  EXPECT_TRUE(host_->broken());
  ::close(inside.one);
}

TEST_F(TrunkTest, AMachineReachesOnlySoMuch) {
  std::vector<Pair> pairs(kTrunkOutward + 1);
  int carried = 0;
  for (const Pair& pair : pairs) {
    carried += machine_->carry_out(pair.other, {TrunkPurpose::kFiles, "7"}) ? 1 : 0;
  }
  EXPECT_EQ(carried, kTrunkOutward);
  for (const Pair& pair : pairs) {
    ::close(pair.one);
  }
  ::close(pairs.back().other);
}

// What was said before the end arrives, and until it has, the channel is nobody else's.
TEST_F(TrunkTest, AChannelIsOpenedAnewWhenEverythingOfTheOldOneHasArrived) {
  const Pair client;
  ASSERT_TRUE(host_->carry(client.other));
  EXPECT_TRUE(serve());
  const int first = opened_;
  const int small = 4096;
  ASSERT_GE(first, 0);
  ::setsockopt(client.other, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const std::string much(40'000, 'm');
  ASSERT_EQ(::send(first, much.data(), much.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(much.size()));
  EXPECT_TRUE(serve());
  ::close(first);
  EXPECT_TRUE(serve());
  EXPECT_TRUE(host_->carries(1));
  const Pair other;
  ASSERT_TRUE(host_->carry(other.other));
  EXPECT_TRUE(serve());
  std::size_t got = 0;
  for (int i = 0; i < 100 && got < much.size(); ++i) {
    got += read_from(client.one).size();
    EXPECT_TRUE(serve(2));
  }
  EXPECT_EQ(got, much.size());
  EXPECT_FALSE(host_->carries(1));
  ::close(client.one);
  ::close(other.one);
}

TEST_F(TrunkTest, ThereAreOnlySoManyConnections) {
  std::vector<Pair> pairs(kTrunkInward);
  int carried = 0;
  for (const Pair& pair : pairs) {
    carried += host_->carry(pair.other) ? 1 : 0;
  }
  EXPECT_EQ(carried, kTrunkInward - 1);
  for (const Pair& pair : pairs) {
    ::close(pair.one);
  }
  ::close(pairs.back().other);
}

// A line of two pipes, one of which has something around its bytes.
TEST(TrunkLine, BothWaysCanBeDescriptorsOfTheirOwn) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  ASSERT_EQ(::pipe2(in.data(), O_CLOEXEC | O_NONBLOCK), 0);
  ASSERT_EQ(::pipe2(out.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const Pair host_first;
  const Pair machine_first;
  auto host = std::make_unique<Trunk>();
  auto machine = std::make_unique<Trunk>();
  int reads = 0;
  const Trunk::LineReader reader = {[](void* self, int fd, char* data, std::size_t size) -> long {
                                      ++*static_cast<int*>(self);
                                      return ::read(fd, data, size);
                                    },
                                    &reads};
  host->begin(TrunkEnd::kHost, {out[0], in[1], reader}, host_first.other, {});
  machine->begin(TrunkEnd::kMachine, {in[0], out[1], {}}, machine_first.other, {});
  machine->say(TrunkKind::kHello);
  // More than a pipe holds.
  const std::string much(300'000, 'm');
  std::string got;
  std::size_t sent = 0;
  unsigned ready = 0;
  for (int i = 0; i < 2000 && got.size() < much.size(); ++i) {
    const ssize_t n = ::send(machine_first.one, much.data() + sent, much.size() - sent,
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    ASSERT_TRUE(machine->serve(nullptr, 0, ready, 0));
    ASSERT_TRUE(host->serve(nullptr, 0, ready, 0));
    std::array<char, 4096> piece{};
    for (ssize_t m = 0;
         (m = ::recv(host_first.one, piece.data(), piece.size(), MSG_DONTWAIT)) > 0;) {
      got.append(piece.data(), static_cast<std::size_t>(m));
    }
  }
  EXPECT_TRUE(got == much);
  EXPECT_GT(reads, 0);
  EXPECT_TRUE(host->heard_hello());
  // What was said is heard, and then the line is at its end.
  ::close(in[1]);
  bool open = true;
  for (int i = 0; i < 4 && open; ++i) {
    open = machine->serve(nullptr, 0, ready, 0);
  }
  EXPECT_FALSE(open);
  EXPECT_FALSE(machine->broken());
  for (const int fd : {in[0], out[0], out[1], host_first.one, host_first.other, machine_first.one,
                       machine_first.other}) {
    ::close(fd);
  }
}

}  // namespace
}  // namespace carrel::protocol
