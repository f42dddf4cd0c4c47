#include "manager/commands.h"

#include <algorithm>
#include <chrono>

namespace carrel::manager {
namespace {

using protocol::FrameType;

constexpr int kAnswerMs = 10'000;
constexpr std::uint32_t kChannel = 1;

protocol::Reader reader_of(const sandbox::GuestFrame& frame) {
  return protocol::Reader(
      {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
}

std::string_view text_of(const protocol::Writer& writer) {
  const auto bytes = writer.written();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error malformed() { return {Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}}; }

// A command of a shell waits for its turn, so nobody is told that it started: it is the newest of
// those that the guest knows, which it is asked for in the same breath.
Result<std::uint64_t> find_in_shell(sandbox::GuestStream& stream) {
  CARREL_TRY(stream.send(0, FrameType::kList));
  std::uint64_t newest = 0;
  // One that only ever sends other things is not listened to for ever.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kAnswerMs);
  for (;;) {
    CARREL_ASSIGN(const sandbox::GuestFrame frame, stream.wait(kAnswerMs));
    if (frame.type == FrameType::kRefused) {
      return sandbox::to_error(frame.payload);
    }
    if (frame.type == FrameType::kListEnd) {
      break;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return Error{Code::kTimeout, 0, "the sandbox's guest does not answer", {}};
    }
    protocol::CommandRow row;
    if (frame.type == FrameType::kCommand && !protocol::parse_command_row(frame.payload, row)) {
      return malformed();
    }
    if (frame.type == FrameType::kCommand && row.kind == protocol::StartKind::kShell) {
      newest = std::max(newest, row.id);
    }
  }
  return newest != 0 ? Result<std::uint64_t>(newest) : Result<std::uint64_t>(malformed());
}

}  // namespace

Result<std::uint64_t> start_command(sandbox::GuestStream& stream,
                                    const sandbox::CommandRequest& request, sandbox::Input input) {
  CARREL_ASSIGN(const std::string payload, sandbox::encode_start(request, input));
  CARREL_TRY(stream.send(kChannel, FrameType::kStart, payload));
  if (request.arguments.empty()) {
    return find_in_shell(stream);
  }
  CARREL_ASSIGN(const sandbox::GuestFrame frame, stream.wait(kAnswerMs));
  if (frame.type == FrameType::kRefused) {
    return sandbox::to_error(frame.payload);
  }
  protocol::Reader reader = reader_of(frame);
  const std::uint64_t id = reader.u64();
  if (frame.type != FrameType::kStarted || !reader.ok()) {
    return Error{Code::kResource, 0, "the command could not be started", {}};
  }
  return id;
}

Result<std::vector<KnownCommand>> list_commands(sandbox::GuestStream& stream) {
  CARREL_TRY(stream.send(0, FrameType::kList));
  std::vector<KnownCommand> commands;
  for (;;) {
    CARREL_ASSIGN(const sandbox::GuestFrame frame, stream.wait(kAnswerMs));
    if (frame.type == FrameType::kListEnd) {
      return commands;
    }
    protocol::CommandRow row;
    if (frame.type != FrameType::kCommand || !protocol::parse_command_row(frame.payload, row)) {
      return malformed();
    }
    commands.push_back({row.id,
                        row.running != 0,
                        row.kind,
                        row.started_ms,
                        {row.stdout_start, row.stderr_start},
                        {row.stdout_end, row.stderr_end},
                        std::string(row.title)});
  }
}

Result<KnownCommand> look_at_command(sandbox::GuestStream& stream, std::uint64_t id) {
  CARREL_ASSIGN(const std::vector<KnownCommand> commands, list_commands(stream));
  for (const KnownCommand& command : commands) {
    if (command.id == id) {
      return command;
    }
  }
  return Error{Code::kNotFound, 0, "the sandbox knows no command " + std::to_string(id),
               "the newest ones are kept"};
}

Result<Follower> Follower::begin(sandbox::GuestStream& stream, std::uint64_t command,
                                 const std::array<std::uint64_t, 2>& from) {
  std::array<unsigned char, 24> buffer{};
  protocol::Writer writer(buffer);
  writer.u64(command);
  writer.u64(from[0]);
  writer.u64(from[1]);
  CARREL_TRY(stream.send(kChannel, FrameType::kFollow, text_of(writer)));
  return Follower(stream);
}

Result<Follower::News> Follower::next(int timeout_ms) {
  CARREL_ASSIGN(sandbox::GuestFrame frame, stream_->wait(timeout_ms));
  News news;
  protocol::Reader reader = reader_of(frame);
  switch (frame.type) {
    case FrameType::kExit: {
      protocol::Exit end;
      if (!protocol::parse_exit(frame.payload, end)) {
        return malformed();
      }
      news.kind = News::Kind::kEnd;
      news.result = sandbox::to_result(end);
      return news;
    }
    case FrameType::kRefused:
      return sandbox::to_error(frame.payload);
    case FrameType::kStdinTaken:
      news.kind = News::Kind::kInputTaken;
      news.taken = reader.u64();
      return reader.finished() ? Result<News>(std::move(news)) : malformed();
    case FrameType::kOutput: {
      const std::uint8_t which = reader.u8();
      news.offset = reader.u64();
      if (!reader.ok() || which < 1 || which > 2) {
        return malformed();
      }
      news.stream = static_cast<protocol::Stream>(which);
      news.data = reader.rest();
      return news;
    }
    default:
      return malformed();
  }
}

Status Follower::signal(int number) {
  std::array<unsigned char, 4> buffer{};
  protocol::Writer writer(buffer);
  writer.u32(static_cast<std::uint32_t>(number));
  return stream_->send(kChannel, FrameType::kSignal, text_of(writer));
}

Status Follower::kill() { return stream_->send(kChannel, FrameType::kKill); }

Status Follower::resize(std::uint16_t rows, std::uint16_t columns) {
  std::array<unsigned char, 4> buffer{};
  protocol::Writer writer(buffer);
  writer.u16(rows);
  writer.u16(columns);
  return stream_->send(kChannel, FrameType::kResize, text_of(writer));
}

Status Follower::give_input(std::string_view data) {
  return stream_->send(kChannel, FrameType::kStdin, data);
}

Status Follower::close_input() { return stream_->send(kChannel, FrameType::kStdinClose); }

}  // namespace carrel::manager
