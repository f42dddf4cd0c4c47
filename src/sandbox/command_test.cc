#include "sandbox/command.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/files.h"
#include "sandbox/fake_guest_test_support.h"
#include "support/patience.h"

namespace carrel::sandbox {
namespace {

using protocol::EndKind;
using protocol::Exit;
using protocol::FrameType;
using protocol::Refusal;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// What the caller saw of a command that a scripted guest ran.
struct Served {
  Result<ExecResult> result;
  std::string out;
  std::string err;
  std::vector<std::uint64_t> started;
};

// The script runs as the guest, beside the caller; when it returns, the guest is gone.
template <typename Script>
Served serve(Script script, CommandIo io = {}, milliseconds timeout = milliseconds(20'000)) {
  auto [stream, guest] = StreamAndGuest::make();
  std::thread thread([&script, end = std::move(guest)]() mutable { script(end); });
  Served served{Error{}, {}, {}, {}};
  if (!io.output) {
    io.output = [&](protocol::Stream which, std::string_view data) -> Status {
      (which == protocol::Stream::kStdout ? served.out : served.err) += data;
      return {};
    };
  }
  io.started = [&](std::uint64_t id) { served.started.push_back(id); };
  served.result = serve_command(stream, FrameType::kStart, "start", timeout, io);
  stream.close();
  thread.join();
  return served;
}

// The result of a command that ended like this.
ExecResult result_of(const Exit& end) {
  Served served = serve([&](FakeGuest& guest) {
    guest.read();
    guest.send(FrameType::kExit, exit_payload(end));
  });
  EXPECT_TRUE(served.result.ok());
  return served.result.ok() ? std::move(served.result.value()) : ExecResult{};
}

// The error of a command to which the guest's answer was this.
Error error_of(const std::string& bytes) {
  Served served = serve([&](FakeGuest& guest) {
    guest.read();
    guest.write(bytes);
  });
  EXPECT_FALSE(served.result.ok());
  return served.result.ok() ? Error{} : served.result.error();
}

TEST(ServeCommand, PassesTheStartTheOutputAndTheEnd) {
  std::optional<FakeGuest::Frame> start;
  Served served = serve([&](FakeGuest& guest) {
    start = guest.read();
    guest.send(FrameType::kStarted, payload([](protocol::Writer& writer) {
                 writer.u64(77);
                 writer.u32(4);
               }));
    guest.send(FrameType::kOutput, output_payload(1, 0, "o1"));
    guest.send(FrameType::kOutput, output_payload(2, 0, std::string_view("e\0", 2)));
    guest.send(FrameType::kOutput, output_payload(1, 2, "o2"));
    guest.send(FrameType::kOutput, output_payload(1, 4, ""));
    Exit end;
    end.code = 3;
    end.duration_us = 12'999;
    end.cwd = "/tmp";
    guest.send(FrameType::kExit, exit_payload(end));
  });
  ASSERT_TRUE(start.has_value());
  EXPECT_EQ(start->header.type, FrameType::kStart);
  EXPECT_EQ(start->payload, "start");
  ASSERT_TRUE(served.result.ok());
  EXPECT_EQ(served.started, std::vector<std::uint64_t>{77});
  EXPECT_EQ(served.out, "o1o2");
  EXPECT_EQ(served.err, std::string("e\0", 2));
  const ExecResult& result = served.result.value();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.duration_ms, 12);
  EXPECT_EQ(result.cwd, "/tmp");
  EXPECT_EQ(result.reason, "exit status 3");
  EXPECT_FALSE(result.timed_out || result.oom_killed || result.cancelled);
}

TEST(ServeCommand, ExitZeroHasNoReason) {
  const ExecResult result = result_of(Exit{});
  EXPECT_TRUE(result.success());
  EXPECT_EQ(result.reason, "");
}

TEST(ServeCommand, SignalIs128AndItsNumber) {
  Exit end;
  end.kind = EndKind::kSignaled;
  end.signal = SIGSEGV;
  const ExecResult result = result_of(end);
  EXPECT_EQ(result.exit_code, 139);
  EXPECT_EQ(result.signal, SIGSEGV);
  EXPECT_EQ(result.reason, "ended by signal 11 (SIGSEGV)");
}

TEST(ServeCommand, TimeoutIs124) {
  Exit end;
  end.kind = EndKind::kTimedOut;
  const ExecResult result = result_of(end);
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.reason, "timed out");
}

TEST(ServeCommand, CancelledIsLikeSigkill) {
  Exit end;
  end.kind = EndKind::kKilled;
  const ExecResult result = result_of(end);
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_TRUE(result.cancelled);
}

TEST(ServeCommand, MissingProgramIs127) {
  Exit end;
  end.kind = EndKind::kNotStarted;
  end.error_number = ENOENT;
  const ExecResult result = result_of(end);
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(result.reason, "command not found");
}

TEST(ServeCommand, ProgramThatCannotRunIs126) {
  for (const int reason : {EACCES, ENOEXEC, E2BIG}) {
    Exit end;
    end.kind = EndKind::kNotStarted;
    end.error_number = static_cast<std::uint32_t>(reason);
    const ExecResult result = result_of(end);
    EXPECT_EQ(result.exit_code, 126) << reason;
    EXPECT_EQ(result.reason.rfind("cannot execute: ", 0), 0U) << result.reason;
  }
}

TEST(ServeCommand, FlagsOfTheEndAreInTheResult) {
  Exit end;
  end.kind = EndKind::kSignaled;
  end.signal = SIGKILL;
  end.flags = protocol::kExitOutOfMemory | protocol::kExitShellRestarted;
  const ExecResult result = result_of(end);
  EXPECT_TRUE(result.oom_killed);
  EXPECT_TRUE(result.shell_restarted);
  EXPECT_EQ(result.reason, "out of memory");
  EXPECT_EQ(result.exit_code, 137);
}

std::string refusal(Refusal why, int error_number, std::string_view text) {
  return FakeGuest::frame(FrameType::kRefused, payload([&](protocol::Writer& writer) {
                            writer.u32(static_cast<std::uint32_t>(why));
                            writer.u32(static_cast<std::uint32_t>(error_number));
                            writer.bytes(text);
                          }));
}

TEST(ServeCommand, RefusalIsAnErrorOfItsOwnKind) {
  EXPECT_EQ(error_of(refusal(Refusal::kTooMany, 0, "t")).code, Code::kResource);
  EXPECT_EQ(error_of(refusal(Refusal::kUnknown, 0, "t")).code, Code::kNotFound);
  EXPECT_EQ(error_of(refusal(Refusal::kNoShell, 0, "t")).code, Code::kUnsupported);
  EXPECT_EQ(error_of(refusal(Refusal::kBadRequest, 0, "t")).code, Code::kSystem);
  EXPECT_EQ(error_of(refusal(Refusal::kInternal, 0, "t")).code, Code::kSystem);
  EXPECT_EQ(error_of(refusal(static_cast<Refusal>(99), 0, "t")).code, Code::kSystem);
  const Error error = error_of(refusal(Refusal::kNoShell, ENOENT, "cannot start bash"));
  EXPECT_EQ(error.to_string(), "cannot start bash: No such file or directory");
  EXPECT_EQ(error_of(refusal(Refusal::kInternal, 0, "")).to_string(),
            "the sandbox's guest sent a malformed answer");
}

TEST(ServeCommand, FailedBootNamesTheStep) {
  const Error error =
      error_of(FakeGuest::frame(FrameType::kBootFailed, payload([](protocol::Writer& writer) {
                                  writer.u32(EPERM);
                                  writer.bytes("mount /proc");
                                }),
                                0));
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_EQ(error.to_string(),
            "Failed to create sandbox: cannot mount /proc: Operation not permitted "
            "(run 'carrel doctor')");
}

TEST(ServeCommand, MalformedAnswerEndsTheConversation) {
  Exit end;
  const std::string exit = exit_payload(end);
  const std::string number(8, '\1');
  std::string reserved = FakeGuest::frame(FrameType::kExit, exit);
  reserved[11] = 1;
  const std::vector<std::pair<const char*, std::string>> answers = {
      {"short kStarted", FakeGuest::frame(FrameType::kStarted, number)},
      {"long kStarted", FakeGuest::frame(FrameType::kStarted, number + number)},
      {"stream 0", FakeGuest::frame(FrameType::kOutput, output_payload(0, 0, "x"))},
      {"stream 3", FakeGuest::frame(FrameType::kOutput, output_payload(3, 0, "x"))},
      {"output without an offset", FakeGuest::frame(FrameType::kOutput, "\1")},
      {"empty output frame", FakeGuest::frame(FrameType::kOutput, "")},
      {"more stdin than was sent", FakeGuest::frame(FrameType::kStdinTaken, number)},
      {"short kStdinTaken", FakeGuest::frame(FrameType::kStdinTaken, "\1")},
      {"long kStdinTaken", FakeGuest::frame(FrameType::kStdinTaken, std::string(9, '\0'))},
      {"cut kExit", FakeGuest::frame(FrameType::kExit, exit.substr(1))},
      {"long kExit", FakeGuest::frame(FrameType::kExit, exit + "x")},
      {"empty kExit", FakeGuest::frame(FrameType::kExit, "")},
      {"empty kRefused", FakeGuest::frame(FrameType::kRefused, "")},
      {"long kRefused", FakeGuest::frame(FrameType::kRefused, std::string(13, '\0'))},
      {"empty kBootFailed", FakeGuest::frame(FrameType::kBootFailed, "")},
      {"a frame of the host", FakeGuest::frame(FrameType::kStart, "")},
      {"kWelcome", FakeGuest::frame(FrameType::kWelcome, number)},
      {"type 0", FakeGuest::frame(static_cast<FrameType>(0), "")},
      {"type 65535", FakeGuest::frame(static_cast<FrameType>(65'535), "")},
      {"a reserved field", reserved},
      {"a frame over the limit",
       FakeGuest::frame(FrameType::kOutput, std::string(protocol::kMaxGuestPayload + 1, '\1'))},
      {"noise", std::string(64, '\xff')},
  };
  for (const auto& [what, bytes] : answers) {
    EXPECT_EQ(error_of(bytes).code, Code::kGone) << what;
  }
}

TEST(ServeCommand, GuestThatEndsAtAnyPointIsGone) {
  const std::string bytes = FakeGuest::frame(FrameType::kOutput, output_payload(1, 0, "out")) +
                            FakeGuest::frame(FrameType::kExit, exit_payload(Exit{}));
  for (std::size_t size = 0; size < bytes.size(); size += 3) {
    EXPECT_EQ(error_of(bytes.substr(0, size)).code, Code::kGone) << size;
  }
}

TEST(ServeCommand, ErrorOfTheOutputEndsIt) {
  CommandIo io;
  io.output = [](protocol::Stream, std::string_view) -> Status {
    return Error{Code::kSystem, ENOSPC, "write the output", {}};
  };
  Served served = serve(
      [](FakeGuest& guest) {
        guest.read();
        guest.send(FrameType::kOutput, output_payload(1, 0, "x"));
        guest.send(FrameType::kExit, exit_payload(Exit{}));
        guest.read();
      },
      io);
  ASSERT_FALSE(served.result.ok());
  EXPECT_EQ(served.result.error().error_number, ENOSPC);
}

// A file that holds `size` numbered bytes, at its beginning.
UniqueFd file_of(const std::string& text) {
  UniqueFd file(::memfd_create("input", MFD_CLOEXEC));
  EXPECT_TRUE(write_all(file.get(), text).ok());
  EXPECT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  return file;
}

void acknowledge(FakeGuest& guest, std::uint64_t taken) {
  guest.send(FrameType::kStdinTaken, payload([&](protocol::Writer& writer) { writer.u64(taken); }));
}

TEST(ServeCommand, InputStopsAtItsWindowAndGoesOnWhenTaken) {
  std::string text;
  while (text.size() < (1U << 20)) {
    text += std::to_string(text.size()) + '\n';
  }
  const UniqueFd input = file_of(text);
  CommandIo io;
  io.input = input.get();
  std::string got;
  std::size_t most_ahead = 0;
  bool closed = false;
  Served served = serve(
      [&](FakeGuest& guest) {
        guest.read();
        std::size_t taken = 0;
        while (!closed) {
          while (guest.hears_something(100)) {
            const auto frame = guest.read();
            if (!frame.has_value()) {
              return;
            }
            closed = closed || frame->header.type == FrameType::kStdinClose;
            got += frame->payload;
          }
          most_ahead = std::max(most_ahead, got.size() - taken);
          taken = got.size();
          acknowledge(guest, taken);
        }
        guest.send(FrameType::kExit, exit_payload(Exit{}));
      },
      io);
  EXPECT_TRUE(served.result.ok());
  EXPECT_TRUE(closed);
  EXPECT_TRUE(got == text);
  EXPECT_LE(most_ahead, protocol::kInputWindow);
  EXPECT_GT(most_ahead, protocol::kInputWindow / 2);
}

TEST(ServeCommand, EmptyInputIsClosedAtOnce) {
  const UniqueFd input = file_of("");
  CommandIo io;
  io.input = input.get();
  std::optional<FakeGuest::Frame> frame;
  Served served = serve(
      [&](FakeGuest& guest) {
        guest.read();
        frame = guest.read();
        guest.send(FrameType::kExit, exit_payload(Exit{}));
      },
      io);
  EXPECT_TRUE(served.result.ok());
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->header.type, FrameType::kStdinClose);
}

TEST(ServeCommand, WishesOfTheCallerAreFrames) {
  const UniqueFd wake(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  CommandIo io;
  io.wake = wake.get();
  io.on_wake = [&] {
    std::uint64_t count = 0;
    EXPECT_EQ(::read(wake.get(), &count, sizeof count), static_cast<ssize_t>(sizeof count));
    CommandIo::Wish wish;
    wish.signal = SIGINT;
    wish.kill = true;
    wish.resize = true;
    wish.rows = 0x0102;
    wish.columns = 0x0304;
    return wish;
  };
  std::vector<FakeGuest::Frame> frames;
  Served served = serve(
      [&](FakeGuest& guest) {
        guest.read();
        for (int i = 0; i < 3; ++i) {
          frames.push_back(guest.read().value_or(FakeGuest::Frame{}));
        }
        guest.send(FrameType::kExit, exit_payload(Exit{}));
      },
      io);
  EXPECT_TRUE(served.result.ok());
  ASSERT_EQ(frames.size(), 3U);
  EXPECT_EQ(frames[0].header.type, FrameType::kKill);
  EXPECT_EQ(frames[0].payload, "");
  EXPECT_EQ(frames[1].header.type, FrameType::kSignal);
  EXPECT_EQ(frames[1].payload, std::string("\2\0\0\0", 4));
  EXPECT_EQ(frames[2].header.type, FrameType::kResize);
  EXPECT_EQ(frames[2].payload, "\2\1\4\3");
}

TEST(ServeCommand, SilentGuestIsGivenUpAfterTheTimeout) {
  const auto before = Clock::now();
  Served served = serve(
      [](FakeGuest& guest) {
        guest.read();
        guest.read();  // until the host gives up
      },
      {}, milliseconds(1));
  ASSERT_FALSE(served.result.ok());
  EXPECT_EQ(served.result.error().code, Code::kTimeout);
  EXPECT_LT(Clock::now() - before, test::patient(std::chrono::seconds(9)));
}

TEST(ServeCommand, GuestThatNeverStopsTalkingIsGivenUpToo) {
  const auto before = Clock::now();
  Served served = serve(
      [](FakeGuest& guest) {
        guest.read();
        const std::string output = FakeGuest::frame(FrameType::kOutput, output_payload(1, 0, ""));
        while (guest.write(output)) {
        }
      },
      {}, milliseconds(1));
  ASSERT_FALSE(served.result.ok());
  EXPECT_EQ(served.result.error().code, Code::kTimeout);
  EXPECT_LT(Clock::now() - before, test::patient(std::chrono::seconds(9)));
}

// What await_guest() says of a guest that runs the script.
template <typename Script>
Status awaited(Script script, int timeout_ms = 10'000) {
  auto [stream, guest] = StreamAndGuest::make();
  std::thread thread([&script, end = std::move(guest)]() mutable { script(end); });
  const Status heard = await_guest(stream, timeout_ms);
  stream.close();
  thread.join();
  return heard;
}

TEST(AwaitGuest, OneThatKnowsCommandsHasHeardToo) {
  const Status heard = awaited([](FakeGuest& guest) {
    guest.read();
    guest.send(FrameType::kCommand, "one");
    guest.send(FrameType::kCommand, "two");
    guest.send(FrameType::kListEnd, "");
  });
  EXPECT_TRUE(heard.ok());
}

TEST(AwaitGuest, OneThatNeverStopsListingIsGivenUp) {
  const Status heard = awaited(
      [](FakeGuest& guest) {
        guest.read();
        while (guest.write(FakeGuest::frame(FrameType::kCommand, ""))) {
        }
      },
      50);
  ASSERT_FALSE(heard.ok());
  EXPECT_EQ(heard.error().code, Code::kTimeout);
}

TEST(AwaitGuest, AnyOtherAnswerIsMalformed) {
  const Status heard = awaited([](FakeGuest& guest) {
    guest.read();
    guest.send(FrameType::kStarted, "");
  });
  ASSERT_FALSE(heard.ok());
  EXPECT_EQ(heard.error().code, Code::kGone);
}

}  // namespace
}  // namespace carrel::sandbox
