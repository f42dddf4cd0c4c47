#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "cli/box.h"
#include "cli/context.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "manager/commands.h"
#include "storage/events.h"

namespace carrel::cli {

namespace {

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

// The output of one command from where the caller stopped reading. With `follow`, and for one that
// has ended, up to its end; otherwise what there is now.
Result<std::optional<sandbox::ExecResult>> read_output(const Context& context,
                                                       sandbox::GuestStream& stream,
                                                       Foreground& foreground) {
  const std::uint64_t command = number_of(context, OptionId::kCommand);
  const std::uint64_t from = number_of(context, OptionId::kFrom);
  CARREL_ASSIGN(const manager::KnownCommand known, manager::look_at_command(stream, command));
  std::array<std::uint64_t, 2> wanted = known.end;
  if (!known.running || context.arguments.has(OptionId::kFollow)) {
    wanted = {kForever, kForever};
  }
  CARREL_ASSIGN(manager::Follower follower,
                manager::Follower::begin(stream, command, {from, from}));
  std::array<std::uint64_t, 2> at = {from, from};
  while (at[0] < wanted[0] || at[1] < wanted[1]) {
    CARREL_ASSIGN(const manager::Follower::News news,
                  follower.next(std::numeric_limits<int>::max()));
    if (news.kind == manager::Follower::News::Kind::kEnd) {
      return std::optional<sandbox::ExecResult>(news.result);
    }
    if (news.kind == manager::Follower::News::Kind::kOutput) {
      at[static_cast<std::size_t>(news.stream) - 1] = news.offset + news.data.size();
      CARREL_TRY(foreground.io().output(news.stream, news.data));
    }
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
  Result<sandbox::ExecResult> shown = result.value().value_or(sandbox::ExecResult{});
  foreground.finish(shown);
  sandbox::ExecResult& end = shown.value();
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
