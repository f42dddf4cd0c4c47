#include "sandbox/command.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "protocol/frame.h"

namespace carrel::sandbox {

namespace {

using protocol::FrameType;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kChannel = 1;
constexpr std::chrono::milliseconds kPatience{5000};
constexpr std::size_t kInputPiece = 32U << 10;

Result<std::string> pack_strings(const std::vector<std::string>& strings, const char* what) {
  std::string data;
  if (strings.size() > protocol::kMaxArguments) {
    return Error{Code::kResource,
                 0,
                 std::to_string(strings.size()) + " " + what + ", over the limit of " +
                     std::to_string(protocol::kMaxArguments),
                 {}};
  }
  for (const std::string& text : strings) {
    if (text.find('\0') != std::string::npos) {
      return Error{Code::kInvalid, 0, std::string("a NUL byte in the ") + what, {}};
    }
    if (text.size() + 1 > protocol::kMaxArgument) {
      return Error{Code::kResource, 0,
                   std::string("one of the ") + what + " is " + std::to_string(text.size()) +
                       " bytes long, over the kernel's limit of " +
                       std::to_string(protocol::kMaxArgument - 1),
                   "pass it through a file or through stdin"};
    }
    data.append(text.c_str(), text.size() + 1);
  }
  if (data.size() > protocol::kMaxText) {
    return Error{Code::kResource,
                 0,
                 std::string("the ") + what + " are " + std::to_string(data.size()) +
                     " bytes together, over the limit of " + std::to_string(protocol::kMaxText),
                 {}};
  }
  return data;
}

std::string signal_words(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return "ended by signal " + std::to_string(signal) +
         (name != nullptr ? std::string(" (SIG") + name + ")" : std::string());
}

// A request is for a separate process or for the shell, and has only what that kind can have.
Status check_kind(const CommandRequest& request) {
  if (!request.arguments.empty() && !(request.shell_text.empty() && request.session.empty())) {
    return Error{Code::kInvalid, 0, "arguments and a command for the shell in one request", {}};
  }
  if (request.arguments.empty() &&
      (!request.environment.empty() || !request.workdir.empty() || request.terminal)) {
    return Error{Code::kInvalid,
                 0,
                 "a command in the shell has no environment, directory or terminal of its own",
                 {}};
  }
  return {};
}

// One command from its start to its end.
class Conversation {
 public:
  Conversation(GuestStream& stream, const CommandIo& io)
      : stream_(stream), io_(io), aside_(io.aside) {}

  Result<ExecResult> run(FrameType type, std::string_view payload,
                         std::chrono::milliseconds timeout) {
    CARREL_TRY(stream_.send(kChannel, type, payload));
    input_open_ = io_.input >= 0;
    Clock::time_point deadline = Clock::now() + timeout + kPatience;
    while (!result_.has_value()) {
      CARREL_TRY(take_frames());
      if (result_.has_value()) {
        break;
      }
      if (Clock::now() >= deadline) {
        return Error{Code::kTimeout, 0, "the sandbox's guest does not answer", {}};
      }
      if (input_open_ || io_.wake >= 0 || aside_ >= 0) {
        CARREL_TRY(wait_for_any(deadline));
      } else {
        CARREL_TRY(stream_.fill_until(deadline));
      }
    }
    return std::move(*result_);
  }

 private:
  // Waits for the guest and for the caller, and takes what comes.
  Status wait_for_any(Clock::time_point deadline) {
    std::array<pollfd, 4> waits{};
    waits[0] = {stream_.fd(), POLLIN, 0};
    bool window = sent_ - taken_ + kInputPiece <= protocol::kInputWindow;
    waits[1] = {input_open_ && window ? io_.input : -1, POLLIN, 0};
    waits[2] = {io_.wake, POLLIN, 0};
    waits[3] = {aside_, POLLIN, 0};
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    int ready = ::poll(waits.data(), waits.size(),
                       static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30)));
    if (ready < 0 && errno != EINTR) {
      return system_error("wait for the sandbox");
    }
    if (waits[2].revents != 0) {
      CARREL_TRY(wake());
    }
    if (waits[0].revents != 0) {
      CARREL_TRY(stream_.fill());
    }
    if (waits[1].revents != 0) {
      CARREL_TRY(pass_input());
    }
    if (waits[3].revents != 0) {
      aside_ = io_.on_aside();
    }
    return {};
  }

  Status take_frames() {
    GuestFrame frame;
    for (;;) {
      CARREL_ASSIGN(bool whole, stream_.next(frame));
      if (!whole || result_.has_value()) {
        return {};
      }
      CARREL_TRY(take(frame));
    }
  }

  Status take(const GuestFrame& frame) {
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
    switch (frame.type) {
      case FrameType::kStarted: {
        std::uint64_t id = reader.u64();
        reader.u32();
        if (!reader.finished()) {
          break;
        }
        if (io_.started) {
          io_.started(id);
        }
        return {};
      }
      case FrameType::kOutput: {
        std::uint8_t stream = reader.u8();
        reader.u64();
        std::string_view data = reader.rest();
        if (!reader.ok() || (stream != 1 && stream != 2)) {
          break;
        }
        return io_.output ? io_.output(static_cast<protocol::Stream>(stream), data) : Status{};
      }
      case FrameType::kStdinTaken:
        taken_ = reader.u64();
        if (!reader.finished() || taken_ > sent_) {
          break;
        }
        return {};
      case FrameType::kExit: {
        protocol::Exit end;
        if (!protocol::parse_exit(frame.payload, end)) {
          break;
        }
        result_ = to_result(end);
        return {};
      }
      case FrameType::kRefused:
        return to_error(frame.payload);
      case FrameType::kBootFailed:
        return to_boot_error(frame.payload);
      default:
        break;
    }
    return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
  }

  Status wake() {
    CommandIo::Wish wish = io_.on_wake();
    if (wish.kill) {
      CARREL_TRY(unless_gone(stream_.send(kChannel, FrameType::kKill)));
    }
    if (wish.signal != 0) {
      std::array<unsigned char, 4> buffer{};
      protocol::Writer writer(buffer);
      writer.u32(static_cast<std::uint32_t>(wish.signal));
      CARREL_TRY(unless_gone(send(FrameType::kSignal, writer)));
    }
    if (wish.resize) {
      std::array<unsigned char, 4> buffer{};
      protocol::Writer writer(buffer);
      writer.u16(wish.rows);
      writer.u16(wish.columns);
      CARREL_TRY(unless_gone(send(FrameType::kResize, writer)));
    }
    return {};
  }

  Status send(FrameType type, const protocol::Writer& writer) {
    auto bytes = writer.written();
    return stream_.send(kChannel, type,
                        {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  Status pass_input() {
    std::array<char, kInputPiece> buffer{};
    ssize_t n = ::read(io_.input, buffer.data(), buffer.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
      return {};
    }
    if (n <= 0) {
      input_open_ = false;
      return unless_gone(stream_.send(kChannel, FrameType::kStdinClose));
    }
    sent_ += static_cast<std::uint64_t>(n);
    return unless_gone(
        stream_.send(kChannel, FrameType::kStdin, {buffer.data(), static_cast<std::size_t>(n)}));
  }

  // A guest that has just told the end no longer takes anything; its last frames are still to be
  // read, and if there are none, reading says that it is gone.
  Status unless_gone(Status sent) {
    if (!sent.ok() && sent.error().code == Code::kGone) {
      input_open_ = false;
      return {};
    }
    return sent;
  }

  GuestStream& stream_;
  const CommandIo& io_;
  int aside_;
  bool input_open_ = false;
  std::uint64_t sent_ = 0;
  std::uint64_t taken_ = 0;
  std::optional<ExecResult> result_;
};

}  // namespace

ExecResult to_result(const protocol::Exit& end) {
  ExecResult result;
  result.cwd = std::string(end.cwd);
  result.duration_ms = static_cast<std::int64_t>(end.duration_us / 1000);
  result.oom_killed = (end.flags & protocol::kExitOutOfMemory) != 0;
  result.process_limit = (end.flags & protocol::kExitProcessLimit) != 0;
  result.files_full = (end.flags & protocol::kExitFilesFull) != 0;
  result.disk_limit = (end.flags & protocol::kExitDiskLimit) != 0;
  result.shell_restarted = (end.flags & protocol::kExitShellRestarted) != 0;
  result.signal = static_cast<int>(end.signal);
  switch (end.kind) {
    case protocol::EndKind::kExited:
      result.exit_code = static_cast<int>(end.code);
      if (result.exit_code != 0) {
        result.reason = "exit status " + std::to_string(result.exit_code);
      }
      break;
    case protocol::EndKind::kSignaled:
      result.exit_code = 128 + result.signal;
      result.reason = signal_words(result.signal);
      break;
    case protocol::EndKind::kTimedOut:
      result.exit_code = kExitTimeout;
      result.timed_out = true;
      result.reason = "timed out";
      break;
    case protocol::EndKind::kKilled:
      result.exit_code = 128 + SIGKILL;
      result.signal = SIGKILL;
      result.cancelled = true;
      result.reason = "cancelled";
      break;
    case protocol::EndKind::kNotStarted: {
      int reason = static_cast<int>(end.error_number);
      result.exit_code = reason == ENOENT ? kExitNotFound : kExitNotExecutable;
      result.reason = reason == ENOENT ? "command not found"
                                       : std::string("cannot execute: ") + std::strerror(reason);
      break;
    }
  }
  result.no_network = (end.flags & protocol::kExitNoNetwork) != 0;
  if (result.oom_killed) {
    result.reason = "out of memory";
    add_cause(result, {"memory", result.reason, "--memory"});
  } else if (result.timed_out) {
    add_cause(result, {"timeout", "timed out after " + std::to_string(result.duration_ms) + " ms",
                       "--timeout"});
  }
  return result;
}

Error to_error(std::string_view payload) {
  protocol::Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  auto refusal = static_cast<protocol::Refusal>(reader.u32());
  int error_number = static_cast<int>(reader.u32() & 0xfff);
  std::string text(reader.text(protocol::kMaxReason));
  if (!reader.finished() || text.empty()) {
    return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
  }
  switch (refusal) {
    case protocol::Refusal::kTooMany:
      return Error{Code::kResource, error_number, text, {}};
    case protocol::Refusal::kNoWorkdir:
      return Error{Code::kInvalid, error_number, text,
                   "choose one that exists, or one below a directory that can be written to"};
    case protocol::Refusal::kPaused:
      return Error{Code::kConflict, error_number, text, "'carrel resume' lets it go on"};
    case protocol::Refusal::kUnknown:
      return Error{Code::kNotFound, error_number, text, {}};
    case protocol::Refusal::kNoShell:
      return Error{Code::kUnsupported, error_number, text, {}};
    default:
      return Error{Code::kSystem, error_number, text, {}};
  }
}

Result<std::string> encode_start(const CommandRequest& request, Input input) {
  CARREL_TRY(check_kind(request));
  CARREL_ASSIGN(std::string arguments, pack_strings(request.arguments, "arguments"));
  CARREL_ASSIGN(std::string environment,
                pack_strings(request.environment, "environment variables"));
  if (request.shell_text.find('\0') != std::string::npos) {
    return Error{Code::kInvalid, 0, "a NUL byte in the command", {}};
  }
  if (request.shell_text.size() > protocol::kMaxText) {
    return Error{Code::kResource, 0,
                 "the command is " + std::to_string(request.shell_text.size()) +
                     " bytes long, over the limit of " + std::to_string(protocol::kMaxText),
                 "pass it through a file or through stdin"};
  }
  if (request.session.size() > protocol::kMaxName || request.workdir.size() > protocol::kMaxPath) {
    return Error{Code::kInvalid, 0, "the session's name or the directory is too long", {}};
  }
  if (request.session.find('\0') != std::string::npos ||
      request.workdir.find('\0') != std::string::npos) {
    return Error{Code::kInvalid, 0, "a NUL byte in the session's name or in the directory", {}};
  }
  if (!request.workdir.empty() && request.workdir.front() != '/') {
    return Error{Code::kInvalid, 0, "the directory '" + request.workdir + "' is not absolute", {}};
  }
  if (request.timeout.count() <= 0 ||
      static_cast<std::uint64_t>(request.timeout.count()) > protocol::kMaxTimeoutMs) {
    return Error{Code::kInvalid,
                 0,
                 "a timeout of " + std::to_string(request.timeout.count()) +
                     " ms is not between 1 ms and 30 days",
                 {}};
  }
  protocol::Start start;
  bool shell = request.arguments.empty();
  start.kind = shell ? protocol::StartKind::kShell : protocol::StartKind::kExec;
  start.flags = (request.terminal ? protocol::kStartTerminal : 0U) |
                (request.merged ? protocol::kStartMerged : 0U) |
                (input == Input::kFollows ? protocol::kStartStdin : 0U);
  start.timeout_ms = static_cast<std::uint64_t>(request.timeout.count());
  start.rows = request.rows;
  start.columns = request.columns;
  start.caller = static_cast<std::uint16_t>(::sched_getcpu() + 1);
  start.workdir = request.workdir;
  start.session = request.session;
  start.text = request.shell_text;
  start.arguments = {static_cast<std::uint32_t>(request.arguments.size()), arguments};
  start.environment = {static_cast<std::uint32_t>(request.environment.size()), environment};
  std::string payload(arguments.size() + environment.size() + request.shell_text.size() +
                          request.workdir.size() + request.session.size() + 128,
                      '\0');
  if (payload.size() > protocol::kMaxPayload) {
    return Error{Code::kResource, 0, "the command and its environment are too large together", {}};
  }
  protocol::Writer writer({reinterpret_cast<unsigned char*>(payload.data()), payload.size()});
  protocol::write_start(writer, start);
  payload.resize(writer.size());
  return payload;
}

Error to_boot_error(std::string_view payload) {
  protocol::Reader reader({reinterpret_cast<const unsigned char*>(payload.data()), payload.size()});
  const int reason = static_cast<int>(reader.u32() & 0xfff);
  const std::string text(reader.text(1024));
  if (!reader.finished()) {
    return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
  }
  return Error{Code::kUnsupported, reason, "Failed to create sandbox: cannot " + text,
               "run 'carrel doctor'"};
}

Status await_guest(GuestStream& stream, int timeout_ms) {
  CARREL_TRY(stream.send(0, FrameType::kList));
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    CARREL_ASSIGN(const GuestFrame frame,
                  stream.wait(static_cast<int>(std::max<std::int64_t>(left, 0))));
    if (frame.type == FrameType::kBootFailed) {
      return to_boot_error(frame.payload);
    }
    if (frame.type == FrameType::kListEnd) {
      return {};
    }
    if (frame.type != FrameType::kCommand) {
      return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
    }
    if (Clock::now() >= deadline) {
      return Error{Code::kTimeout, 0, "the sandbox's guest does not answer", {}};
    }
  }
}

Result<ExecResult> serve_command(GuestStream& stream, FrameType type, std::string_view payload,
                                 std::chrono::milliseconds timeout, const CommandIo& io) {
  Conversation conversation(stream, io);
  return conversation.run(type, payload, timeout);
}

}  // namespace carrel::sandbox
