#include "sandbox/guest_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "sandbox/fake_guest_test_support.h"
#include "support/patience.h"

namespace carrel::sandbox {
namespace {

using protocol::FrameType;
using Clock = std::chrono::steady_clock;

const std::string kId = "01234567-89ab-4cde-8f01-23456789abcd";

std::string welcome(std::uint32_t version, std::string_view id) {
  return payload([&](protocol::Writer& writer) {
    writer.u32(version);
    writer.bytes(id);
  });
}

TEST(GuestStream, SendWritesTheHeaderAndThePayload) {
  auto [stream, guest] = StreamAndGuest::make();
  ASSERT_TRUE(stream.send(7, FrameType::kStdin, "hello").ok());
  const auto frame = guest.read();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->header.channel, 7U);
  EXPECT_EQ(frame->header.type, FrameType::kStdin);
  EXPECT_EQ(frame->payload, "hello");
}

TEST(GuestStream, PayloadOverTheLimitIsRefusedAndNothingIsSent) {
  auto [stream, guest] = StreamAndGuest::make();
  const Status status =
      stream.send(1, FrameType::kStart, std::string(protocol::kMaxPayload + 1, 'x'));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kResource);
  EXPECT_FALSE(guest.hears_something(0));
}

TEST(GuestStream, LargestPayloadArrivesWhole) {
  auto [stream, guest] = StreamAndGuest::make();
  const std::string large(protocol::kMaxPayload, 'x');
  std::optional<FakeGuest::Frame> frame;
  std::thread reader([&frame, &end = guest] { frame = end.read(); });
  EXPECT_TRUE(stream.send(1, FrameType::kStart, large).ok());
  reader.join();
  ASSERT_TRUE(frame.has_value());
  EXPECT_TRUE(frame->payload == large);
}

TEST(GuestStream, GuestThatDoesNotReadIsGivenUp) {
  auto [stream, guest] = StreamAndGuest::make();
  stream.set_patience(std::chrono::milliseconds(100));
  const auto before = Clock::now();
  const Status status = stream.send(1, FrameType::kStart, std::string(protocol::kMaxPayload, 'x'));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kTimeout);
  EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(100));
  EXPECT_LT(Clock::now() - before, test::patient(std::chrono::seconds(5)));
}

TEST(GuestStream, SendToAGuestThatIsGoneIsAnErrorAndNoSignal) {
  auto [stream, guest] = StreamAndGuest::make();
  guest.close();
  const Status status = stream.send(1, FrameType::kKill);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kGone);
}

TEST(GuestStream, FrameIsThereOnlyWithItsLastByte) {
  auto [stream, guest] = StreamAndGuest::make();
  const std::string bytes = FakeGuest::frame(FrameType::kOutput, "payload", 3);
  GuestFrame frame;
  for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
    ASSERT_TRUE(guest.write(bytes.substr(i, 1)));
    ASSERT_TRUE(stream.fill().ok());
    auto whole = stream.next(frame);
    ASSERT_TRUE(whole.ok());
    EXPECT_FALSE(whole.value()) << i;
  }
  ASSERT_TRUE(guest.write(bytes.substr(bytes.size() - 1)));
  ASSERT_TRUE(stream.fill().ok());
  auto whole = stream.next(frame);
  ASSERT_TRUE(whole.ok() && whole.value());
  EXPECT_EQ(frame.channel, 3U);
  EXPECT_EQ(frame.type, FrameType::kOutput);
  EXPECT_EQ(frame.payload, "payload");
}

TEST(GuestStream, FramesThatCameTogetherAreTakenOneByOne) {
  auto [stream, guest] = StreamAndGuest::make();
  ASSERT_TRUE(guest.write(FakeGuest::frame(FrameType::kOutput, "one", 1) +
                          FakeGuest::frame(FrameType::kListEnd, "", 2) +
                          FakeGuest::frame(FrameType::kOutput, "three", 3).substr(0, 15)));
  ASSERT_TRUE(stream.fill().ok());
  GuestFrame frame;
  ASSERT_TRUE(stream.next(frame).value());
  EXPECT_EQ(frame.payload, "one");
  ASSERT_TRUE(stream.next(frame).value());
  EXPECT_EQ(frame.type, FrameType::kListEnd);
  EXPECT_EQ(frame.payload, "");
  EXPECT_FALSE(stream.next(frame).value());
  ASSERT_TRUE(guest.write("ee"));
  EXPECT_EQ(stream.wait(1000).value().payload, "three");
}

TEST(GuestStream, FillWithNothingThereReturnsAtOnce) {
  auto [stream, guest] = StreamAndGuest::make();
  EXPECT_TRUE(stream.fill().ok());
}

TEST(GuestStream, FillUntilReturnsWithTheFirstBytes) {
  auto [stream, guest] = StreamAndGuest::make();
  for (int i = 0; i < 5; ++i) {
    std::thread writer([&end = guest] { end.send(FrameType::kWelcome, "hello"); });
    EXPECT_TRUE(stream.fill_until(Clock::now() + std::chrono::seconds(20)).ok());
    writer.join();
    GuestFrame frame;
    const auto whole = stream.next(frame);
    ASSERT_TRUE(whole.ok() && whole.value());
    EXPECT_EQ(frame.payload, "hello");
  }
}

TEST(GuestStream, FillUntilEndsWithItsDeadline) {
  auto [stream, guest] = StreamAndGuest::make();
  for (const int wait : {0, 30, 1300}) {
    const auto before = Clock::now();
    EXPECT_TRUE(stream.fill_until(before + std::chrono::milliseconds(wait)).ok());
    EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(wait));
    EXPECT_LT(Clock::now() - before, test::patient(std::chrono::milliseconds(wait + 900)));
  }
}

TEST(GuestStream, FillUntilTellsThatTheGuestIsGone) {
  auto [stream, guest] = StreamAndGuest::make();
  guest.close();
  const Status status = stream.fill_until(Clock::now() + std::chrono::seconds(20));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kGone);
}

TEST(GuestStream, LargestFrameOfAGuestIsReadAndALargerOneIsMalformed) {
  auto [stream, guest] = StreamAndGuest::make();
  const std::string large(protocol::kMaxGuestPayload, 'g');
  ASSERT_TRUE(guest.send(FrameType::kOutput, large));
  EXPECT_TRUE(stream.wait(5000).value().payload == large);
  ASSERT_TRUE(guest.send(FrameType::kOutput, large + "g"));
  const auto frame = stream.wait(5000);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, Code::kGone);
}

TEST(GuestStream, ReservedFieldIsMalformed) {
  auto [stream, guest] = StreamAndGuest::make();
  std::string bytes = FakeGuest::frame(FrameType::kListEnd, "");
  bytes[10] = 1;
  ASSERT_TRUE(guest.write(bytes));
  const auto frame = stream.wait(5000);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, Code::kGone);
}

TEST(GuestStream, FramesSentBeforeTheEndAreNotLost) {
  auto [stream, guest] = StreamAndGuest::make();
  ASSERT_TRUE(guest.send(FrameType::kOutput, "last words"));
  guest.close();
  EXPECT_EQ(stream.wait(5000).value().payload, "last words");
  const auto frame = stream.wait(5000);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, Code::kGone);
}

TEST(GuestStream, WaitEndsWithItsTimeout) {
  auto [stream, guest] = StreamAndGuest::make();
  ASSERT_TRUE(guest.write("half"));
  const auto before = Clock::now();
  const auto frame = stream.wait(50);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, Code::kTimeout);
  EXPECT_GE(Clock::now() - before, std::chrono::milliseconds(50));
}

TEST(GuestStream, GreetingTellsTheIdAndTakesTheSameBack) {
  auto [stream, guest] = StreamAndGuest::make();
  ASSERT_TRUE(guest.send(FrameType::kWelcome, welcome(protocol::kVersion, kId), 0));
  EXPECT_TRUE(stream.greet(kId, 5000).ok());
  const auto hello = guest.read();
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->header.type, FrameType::kHello);
  EXPECT_EQ(hello->payload, welcome(protocol::kVersion, kId));
}

TEST(GuestStream, GreetingAnsweredByAnythingElseIsGone) {
  std::string other = kId;
  other.back() = 'e';
  const std::vector<std::pair<FrameType, std::string>> answers = {
      {FrameType::kWelcome, welcome(protocol::kVersion, other)},
      {FrameType::kWelcome, welcome(protocol::kVersion, "")},
      {FrameType::kWelcome, welcome(protocol::kVersion + 1, kId)},
      {FrameType::kWelcome, welcome(protocol::kVersion, kId) + "x"},
      {FrameType::kWelcome, ""},
      {FrameType::kReady, welcome(protocol::kVersion, kId)},
      {FrameType::kHello, welcome(protocol::kVersion, kId)},
  };
  for (std::size_t i = 0; i < answers.size(); ++i) {
    auto [stream, guest] = StreamAndGuest::make();
    ASSERT_TRUE(guest.send(answers[i].first, answers[i].second, 0));
    const Status status = stream.greet(kId, 5000);
    ASSERT_FALSE(status.ok()) << i;
    EXPECT_EQ(status.error().code, Code::kGone) << i;
  }
}

TEST(GuestStream, GreetingWithoutAnAnswerTimesOut) {
  auto [stream, guest] = StreamAndGuest::make();
  const Status status = stream.greet(kId, 20);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kTimeout);
}

}  // namespace
}  // namespace carrel::sandbox
