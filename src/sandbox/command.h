#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/message.h"
#include "sandbox/exec_result.h"
#include "sandbox/guest_stream.h"

namespace carrel::sandbox {

// What to run. Either `arguments` (a separate process) or `shell_text` (in the long-lived shell).
struct CommandRequest {
  std::vector<std::string> arguments;
  std::string shell_text;
  std::string session;
  std::vector<std::string> environment;  // NAME=VALUE, added to the sandbox's own
  std::string workdir;
  std::chrono::milliseconds timeout{60'000};
  bool terminal = false;
  bool merged = false;
  std::uint16_t rows = 24;
  std::uint16_t columns = 80;
};

// Whether frames with the command's stdin come after its start.
enum class Input { kNone, kFollows };

// Encodes the request; kInvalid or kResource with a clear sentence when it cannot be sent. What is
// encoded is what the guest's parser accepts.
Result<std::string> encode_start(const CommandRequest& request, Input input);

// The caller's side of a running command. Descriptors are borrowed.
struct CommandIo {
  int input = -1;  // its bytes become the command's stdin; -1: stdin is empty
  // Called with each piece of output as it comes. An error ends the command.
  std::function<Status(protocol::Stream, std::string_view)> output;
  // Becomes readable when the caller has something to say; see `on_wake`.
  int wake = -1;
  // What the caller wants done now.
  struct Wish {
    int signal = 0;  // forward this signal
    bool kill = false;
    bool resize = false;
    std::uint16_t rows = 0;
    std::uint16_t columns = 0;
  };
  std::function<Wish()> on_wake;
  // Somebody else who may have something to say, and what to do when it has: returns whom to wait
  // for from then on.
  int aside = -1;
  std::function<int()> on_aside;
  std::function<void(std::uint64_t id)> started;
};

// What a guest says about a command's end, and why it refused one, in the host's terms. The payload
// of a refusal is hostile.
ExecResult to_result(const protocol::Exit& end);
Error to_error(std::string_view payload);
// What kBootFailed says.
Error to_boot_error(std::string_view payload);

// Waits until the guest has heard all that was sent to it before, whatever commands it knows; that
// of a new sandbox answers when its room is closed, and its error is the step that failed.
Status await_guest(GuestStream& stream, int timeout_ms);

// Sends a start (or follow) frame that was encoded before and serves the command until it ends.
// kGone when the sandbox ended first. The guest is trusted with nothing: after the command's
// timeout plus `patience` without an answer, kTimeout is returned and the caller ends the sandbox.
Result<ExecResult> serve_command(GuestStream& stream, protocol::FrameType type,
                                 std::string_view payload, std::chrono::milliseconds timeout,
                                 const CommandIo& io);

}  // namespace carrel::sandbox
