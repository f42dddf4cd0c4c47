#include <unistd.h>

#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "base/files.h"
#include "cli/box.h"
#include "cli/context.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "storage/events.h"

namespace carrel::cli {

namespace {

constexpr int kAnswerMs = 10'000;
constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

std::uint64_t number_of(const Context& context, OptionId id) {
  std::string_view text = context.arguments.value(id).value_or("0");
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// The log of the sandbox: what was run in it and how it ended.
int show_events(const Context& context) {
  auto home = storage::Home::open();
  if (!home.ok()) {
    return fail(context, home.error());
  }
  std::string id(context.arguments.operands.front());
  auto record = storage::find_box(home.value(), id);
  if (record.ok()) {
    id = record.value().id;
  }
  std::vector<std::string> lines = storage::events_of(home.value(), id);
  if (lines.empty() && !record.ok()) {
    return fail(context, record.error());
  }
  for (const std::string& line : lines) {
    print(context.json() ? line + "\n" : printable(storage::describe_event(line)) + "\n");
  }
  return 0;
}

// How far each stream of a command reaches now, and whether more can come.
struct Extent {
  std::array<std::uint64_t, 2> end{};
  bool running = false;
};

Result<Extent> look_at(sandbox::GuestStream& stream, std::uint64_t command) {
  CARREL_TRY(stream.send(0, protocol::FrameType::kList));
  std::optional<Extent> extent;
  for (;;) {
    CARREL_ASSIGN(sandbox::GuestFrame frame, stream.wait(kAnswerMs));
    if (frame.type == protocol::FrameType::kListEnd) {
      break;
    }
    protocol::CommandRow row;
    if (frame.type != protocol::FrameType::kCommand ||
        !protocol::parse_command_row(frame.payload, row)) {
      return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
    }
    if (row.id == command) {
      extent = Extent{{row.stdout_end, row.stderr_end}, row.running != 0};
    }
  }
  if (!extent.has_value()) {
    return Error{Code::kNotFound, 0, "the sandbox knows no command " + std::to_string(command),
                 "the newest ones are kept"};
  }
  return *extent;
}

// The output of one command from where the caller stopped reading. With `follow`, and for one that
// has ended, up to its end; otherwise what there is now.
Result<std::optional<sandbox::ExecResult>> read_output(const Context& context,
                                                       sandbox::GuestStream& stream,
                                                       Foreground& foreground) {
  const std::uint64_t command = number_of(context, OptionId::kCommand);
  const std::uint64_t from = number_of(context, OptionId::kFrom);
  CARREL_ASSIGN(Extent extent, look_at(stream, command));
  std::array<std::uint64_t, 2> wanted = extent.end;
  if (!extent.running || context.arguments.has(OptionId::kFollow)) {
    wanted = {kForever, kForever};
  }
  std::array<unsigned char, 24> buffer{};
  protocol::Writer writer(buffer);
  writer.u64(command);
  writer.u64(from);
  writer.u64(from);
  CARREL_TRY(stream.send(1, protocol::FrameType::kFollow,
                         {reinterpret_cast<const char*>(buffer.data()), writer.size()}));
  std::array<std::uint64_t, 2> at = {from, from};
  while (at[0] < wanted[0] || at[1] < wanted[1]) {
    CARREL_ASSIGN(sandbox::GuestFrame frame, stream.wait(std::numeric_limits<int>::max()));
    protocol::Reader reader(
        {reinterpret_cast<const unsigned char*>(frame.payload.data()), frame.payload.size()});
    if (frame.type == protocol::FrameType::kExit) {
      protocol::Exit end;
      if (!protocol::parse_exit(frame.payload, end)) {
        break;
      }
      return std::optional<sandbox::ExecResult>(sandbox::to_result(end));
    }
    if (frame.type == protocol::FrameType::kRefused) {
      return sandbox::to_error(frame.payload);
    }
    std::uint8_t which = reader.u8();
    std::uint64_t offset = reader.u64();
    if (frame.type != protocol::FrameType::kOutput || !reader.ok() || which < 1 || which > 2) {
      return Error{Code::kGone, 0, "the sandbox's guest sent a malformed answer", {}};
    }
    std::string_view data = reader.rest();
    at[which - 1U] = offset + data.size();
    CARREL_TRY(foreground.io().output(static_cast<protocol::Stream>(which), data));
  }
  return std::optional<sandbox::ExecResult>();
}

int show_output(const Context& context) {
  auto connection = connect(context);
  if (!connection.ok()) {
    return fail(context, connection.error());
  }
  Foreground foreground(context.json() ? Foreground::Mode::kCollect : Foreground::Mode::kPassOn,
                        Foreground::Terminal::kNo, -1);
  foreground.let_signals_through();
  auto result = read_output(context, connection.value().stream, foreground);
  if (!result.ok()) {
    return fail(context, result.error());
  }
  sandbox::ExecResult end = result.value().value_or(sandbox::ExecResult{});
  foreground.finish(end);
  if (!result.value().has_value()) {
    end.reason = "still running";
    if (context.json()) {
      print(to_json(end) + "\n");
    }
    return 0;
  }
  return show_result(context, end);
}

}  // namespace

int logs_command(const Context& context) {
  return context.arguments.has(OptionId::kCommand) ? show_output(context) : show_events(context);
}

}  // namespace carrel::cli
