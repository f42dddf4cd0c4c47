#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/message.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"
#include "sandbox/guest_stream.h"

namespace carrel::manager {

// Commands of a sandbox that nobody waits for: its guest keeps them, the newest part of their
// output, and how they ended.

// Starts one and leaves it; returns its number.
Result<std::uint64_t> start_command(sandbox::GuestStream& stream,
                                    const sandbox::CommandRequest& request, sandbox::Input input);

// What the guest knows of a command. The title is hostile.
struct KnownCommand {
  std::uint64_t id = 0;
  bool running = false;
  protocol::StartKind kind = protocol::StartKind::kExec;
  std::uint64_t started_ms = 0;
  std::array<std::uint64_t, 2> start{};  // the oldest offset of stdout and stderr that is kept
  std::array<std::uint64_t, 2> end{};
  std::string title;

  // Whether the sandbox is in use by it. A service is there for those who use the sandbox.
  [[nodiscard]] bool holds() const { return running && kind != protocol::StartKind::kService; }
};

Result<std::vector<KnownCommand>> list_commands(sandbox::GuestStream& stream);
// kNotFound when there is no such command (any more).
Result<KnownCommand> look_at_command(sandbox::GuestStream& stream, std::uint64_t id);

// Where to begin in an output that is to be left alone.
inline constexpr std::uint64_t kAtItsEnd = ~0ULL;

// A command that is followed: its output from two offsets on, and its end. While somebody follows a
// command, nothing that he has not got yet is overwritten. The stream is borrowed, and for this
// alone.
class Follower {
 public:
  static Result<Follower> begin(sandbox::GuestStream& stream, std::uint64_t command,
                                const std::array<std::uint64_t, 2>& from);

  struct News {
    enum class Kind { kOutput, kInputTaken, kEnd };
    Kind kind = Kind::kOutput;
    protocol::Stream stream = protocol::Stream::kStdout;
    std::uint64_t offset = 0;  // of the output
    std::string data;
    std::uint64_t taken = 0;  // of the input, since the command's start
    sandbox::ExecResult result;
  };
  // kTimeout when there is none for so long; kGone when the sandbox ended.
  Result<News> next(int timeout_ms);

  Status signal(int number);
  Status kill();
  Status resize(std::uint16_t rows, std::uint16_t columns);
  Status give_input(std::string_view data);
  Status close_input();
  [[nodiscard]] int fd() const { return stream_->fd(); }

 private:
  explicit Follower(sandbox::GuestStream& stream) : stream_(&stream) {}

  sandbox::GuestStream* stream_;
};

}  // namespace carrel::manager
