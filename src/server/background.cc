#include <array>
#include <charconv>
#include <csignal>
#include <limits>
#include <string>
#include <utility>

#include "base/base64.h"
#include "base/utf8.h"
#include "http/event_stream.h"
#include "manager/box_command.h"
#include "manager/commands.h"
#include "sandbox/result_json.h"
#include "server/handlers.h"
#include "server/service.h"

// Commands that nobody waits for: started, looked at, listened to from any offset, spoken to.
namespace carrel::server {
namespace {

using manager::Follower;
using manager::KnownCommand;
using Visit = manager::Manager::Visit;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = 1U << 20;  // in one answer
constexpr int kAnswerMs = 10'000;
constexpr int kFirstWordMs = 2000;
constexpr int kTickMs = 250;  // how often a stream of events looks at its client
constexpr std::size_t kInputPiece = 64U << 10;
constexpr std::size_t kMostInput = 1U << 20;

Result<std::uint64_t> command_id(const Request& request) {
  const std::string& text = request.arguments[1];
  std::uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{Code::kNotFound, 0, "the sandbox knows no command " + text, {}};
  }
  return id;
}

Result<Visit> visit_of(Request& request) {
  return request.service.manager->visit(request.caller, request.id());
}

Json command_json(const KnownCommand& command) {
  return {{"id", std::to_string(command.id)},
          {"state", command.running ? "running" : "ended"},
          {"kind", command.kind == protocol::StartKind::kShell     ? "shell"
                   : command.kind == protocol::StartKind::kService ? "service"
                                                                   : "exec"},
          {"title", replace_invalid_utf8(command.title)},
          {"started_ms", command.started_ms},
          {"stdout_start", command.start[0]},
          {"stdout_end", command.end[0]},
          {"stderr_start", command.start[1]},
          {"stderr_end", command.end[1]}};
}

// How a command ended that is known to have.
Result<sandbox::ExecResult> end_of(Visit& visit, std::uint64_t id) {
  CARREL_ASSIGN(Follower follower,
                Follower::begin(visit.stream(), id, {manager::kAtItsEnd, manager::kAtItsEnd}));
  for (;;) {
    CARREL_ASSIGN(Follower::News news, follower.next(kAnswerMs));
    if (news.kind == Follower::News::Kind::kEnd) {
      return std::move(news.result);
    }
  }
}

struct Listening {
  std::uint64_t id = 0;
  std::array<std::uint64_t, 2> from{};
};

Result<Listening> listening_of(const Request& request) {
  Listening listening;
  CARREL_ASSIGN(listening.id, command_id(request));
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  CARREL_ASSIGN(listening.from[0], number_in(request.query, "stdout", 0, kMost));
  CARREL_ASSIGN(listening.from[1], number_in(request.query, "stderr", 0, kMost));
  // A client of server-sent events that lost its connection says where it was.
  if (const std::string* last = request.connection.head().find("last-event-id"); last != nullptr) {
    std::array<std::uint64_t, 2> at{};
    const char* end = last->data() + last->size();
    const auto first = std::from_chars(last->data(), end, at[0]);
    if (first.ec == std::errc() && first.ptr != end && *first.ptr == '-' &&
        std::from_chars(first.ptr + 1, end, at[1]).ec == std::errc()) {
      listening.from = at;
    }
  }
  return listening;
}

int signal_number(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, int>, 9> kNames = {{{"HUP", SIGHUP},
                                                                       {"INT", SIGINT},
                                                                       {"QUIT", SIGQUIT},
                                                                       {"KILL", SIGKILL},
                                                                       {"USR1", SIGUSR1},
                                                                       {"USR2", SIGUSR2},
                                                                       {"TERM", SIGTERM},
                                                                       {"CONT", SIGCONT},
                                                                       {"STOP", SIGSTOP}}};
  std::string_view name = text;
  name.remove_prefix(name.starts_with("SIG") ? 3 : 0);
  for (const auto& [known, number] : kNames) {
    if (known == name) {
      return number;
    }
  }
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() && number > 0 && number <= 64
             ? number
             : 0;
}

// Sends what is new as events until the command ends, the client leaves, or the daemon does.
Status send_events(Request& request, Follower& follower, std::array<std::uint64_t, 2> at) {
  CARREL_ASSIGN(const UniqueFd watch, watch_client(request.socket));
  CARREL_TRY(begin_events(request));
  Clock::time_point said = Clock::now();
  while (!request.service.stopping) {
    auto news = follower.next(kTickMs);
    if (!news.ok() && news.error().code != Code::kTimeout) {
      const Error error = request.service.manager->explain_end(request.id(), news.error());
      CARREL_TRY(request.connection.send(
          http::write_event({"", "error", problem(error).body.substr(0, 4096)})));
      break;
    }
    if (!news.ok() || news->kind == Follower::News::Kind::kInputTaken) {
      if (client_left(watch)) {
        return Error{Code::kGone, 0, "the client has left", {}};
      }
      if (Clock::now() - said > kSilence) {
        said = Clock::now();
        CARREL_TRY(request.connection.send(http::kNoEvent));
      }
      continue;
    }
    said = Clock::now();
    if (news->kind == Follower::News::Kind::kEnd) {
      CARREL_TRY(
          request.connection.send(http::write_event({"", "exit", sandbox::to_json(news->result)})));
      break;
    }
    const std::size_t which = static_cast<std::size_t>(news->stream) - 1;
    at[which] = news->offset + news->data.size();
    Json data{{"offset", news->offset}, {"data_b64", base64(news->data)}};
    if (valid_utf8(news->data)) {
      data["data"] = news->data;
    }
    CARREL_TRY(request.connection.send(
        http::write_event({std::to_string(at[0]) + "-" + std::to_string(at[1]),
                           which == 0 ? "stdout" : "stderr", data.dump()})));
  }
  return request.connection.finish();
}

// Returns when the guest has heard everything that was sent before: it answers in turn.
Status sync(Visit& visit) {
  CARREL_TRY(visit.stream().send(0, protocol::FrameType::kList));
  for (;;) {
    CARREL_ASSIGN(const sandbox::GuestFrame frame, visit.stream().wait(kAnswerMs));
    if (frame.type == protocol::FrameType::kListEnd) {
      return {};
    }
  }
}

// Gives the input piece by piece, as the command takes it.
Status give_all(Follower& follower, std::string_view data, std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  std::optional<std::uint64_t> wanted;  // what has to have been taken before the next piece
  std::uint64_t taken = 0;
  std::size_t given = 0;
  while (!wanted.has_value() || taken < *wanted || given < data.size()) {
    if (wanted.has_value() && taken >= *wanted) {
      const std::string_view piece = data.substr(given, kInputPiece);
      CARREL_TRY(follower.give_input(piece));
      given += piece.size();
      wanted = *wanted + piece.size();
      continue;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    const std::int64_t most = wanted.has_value() ? left.count() : kFirstWordMs;
    auto news = follower.next(static_cast<int>(std::max<std::int64_t>(most, 0)));
    if (!news.ok() && news.error().code == Code::kTimeout && !wanted.has_value()) {
      return Error{Code::kConflict, 0, "the command takes no input",
                   "start it with \"stdin\": true"};
    }
    if (!news.ok() && news.error().code == Code::kTimeout) {
      return Error{Code::kConflict, 0, "the command does not read its input",
                   std::to_string(given) + " bytes of it were taken over"};
    }
    if (!news.ok()) {
      return news.error();
    }
    if (news->kind == Follower::News::Kind::kEnd) {
      return Error{Code::kConflict, 0, "the command has ended", {}};
    }
    if (news->kind == Follower::News::Kind::kInputTaken) {
      taken = news->taken;
      wanted = wanted.has_value() ? wanted : taken;  // the first tells what others gave before
    }
  }
  return {};
}

}  // namespace

Status start_background(Request& request) {
  Fields fields(request.body);
  sandbox::CommandRequest command;
  const bool separate = request.body.is_object() && request.body.contains("argv");
  CARREL_TRY(separate ? read_exec(fields, command) : read_shell(fields, command));
  // Without one it runs as long as its sandbox does: nobody's default cuts it off.
  command.timeout =
      fields.duration("timeout").value_or(std::chrono::milliseconds(protocol::kMaxTimeoutMs));
  const bool input = fields.flag("stdin").value_or(false);
  command.terminal = separate && fields.flag("terminal").value_or(false);
  if (separate) {
    command.rows = static_cast<std::uint16_t>(fields.number("rows", 1000).value_or(24));
    command.columns = static_cast<std::uint16_t>(fields.number("columns", 1000).value_or(80));
  }
  CARREL_TRY(fields.finish());
  CARREL_ASSIGN(Visit visit, visit_of(request));
  manager::note_command(request.service.manager->home(), request.id(), command);
  request.service.counters.commands.fetch_add(1, std::memory_order_relaxed);
  CARREL_ASSIGN(const std::uint64_t id,
                manager::start_command(visit.stream(), command,
                                       input ? sandbox::Input::kFollows : sandbox::Input::kNone));
  return reply(request, 201, {{"id", std::to_string(id)}});
}

Status list_background(Request& request) {
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_ASSIGN(const std::vector<KnownCommand> commands, manager::list_commands(visit.stream()));
  Json list = Json::array();
  for (const KnownCommand& command : commands) {
    list.push_back(command_json(command));
  }
  return reply(request, 200, {{"commands", list}});
}

Status get_background(Request& request) {
  CARREL_ASSIGN(const std::uint64_t id, command_id(request));
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_ASSIGN(const KnownCommand command, manager::look_at_command(visit.stream(), id));
  Json object = command_json(command);
  object["result"] = nullptr;
  if (!command.running) {
    CARREL_ASSIGN(const sandbox::ExecResult result, end_of(visit, id));
    Json end = Json::parse(sandbox::to_json(result), nullptr, false);
    end.erase("stdout");
    end.erase("stderr");
    object["result"] = std::move(end);
  }
  return reply(request, 200, object);
}

Status get_output(Request& request) {
  CARREL_ASSIGN(const std::uint64_t id, command_id(request));
  CARREL_ASSIGN(const std::uint64_t offset,
                number_in(request.query, "offset", 0, std::numeric_limits<std::int64_t>::max()));
  const std::string& stream = request.query["stream"];
  if (!stream.empty() && stream != "stdout" && stream != "stderr") {
    return Error{Code::kInvalid, 0, "'stream' must be stdout or stderr", {}};
  }
  const std::size_t which = stream == "stderr" ? 1 : 0;
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_ASSIGN(const KnownCommand command, manager::look_at_command(visit.stream(), id));
  std::string data;
  const std::uint64_t begin = std::min(std::max(offset, command.start[which]), command.end[which]);
  const std::uint64_t end = std::min<std::uint64_t>(command.end[which], begin + kMostOutput);
  if (begin < end) {
    std::array<std::uint64_t, 2> from = {manager::kAtItsEnd, manager::kAtItsEnd};
    from[which] = begin;
    CARREL_ASSIGN(Follower follower, Follower::begin(visit.stream(), id, from));
    while (begin + data.size() < end) {
      CARREL_ASSIGN(const Follower::News news, follower.next(kAnswerMs));
      if (news.kind == Follower::News::Kind::kEnd) {
        break;
      }
      if (news.kind == Follower::News::Kind::kOutput &&
          static_cast<std::size_t>(news.stream) - 1 == which) {
        data += news.data;
      }
    }
    data.resize(std::min<std::size_t>(data.size(), end - begin));
  }
  http::Answer answer{200,
                      {{"content-type", "application/octet-stream"},
                       {"cache-control", "no-store"},
                       {"x-content-type-options", "nosniff"},
                       {"carrel-offset", std::to_string(begin)},
                       {"carrel-next-offset", std::to_string(begin + data.size())},
                       {"carrel-state", command.running ? "running" : "ended"}},
                      std::move(data)};
  return request.connection.answer(answer);
}

Status get_output_events(Request& request) {
  CARREL_ASSIGN(const Listening listening, listening_of(request));
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_TRY(manager::look_at_command(visit.stream(), listening.id));
  CARREL_ASSIGN(Follower follower, Follower::begin(visit.stream(), listening.id, listening.from));
  return send_events(request, follower, listening.from);
}

Status post_stdin(Request& request) {
  CARREL_ASSIGN(const std::uint64_t id, command_id(request));
  const std::string& close = request.query["close"];
  if (!close.empty() && close != "true" && close != "false") {
    return Error{Code::kInvalid, 0, "'close' must be true or false", {}};
  }
  CARREL_ASSIGN(const std::string data, request.connection.whole_body(kMostInput));
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_ASSIGN(const KnownCommand command, manager::look_at_command(visit.stream(), id));
  if (!command.running) {
    return Error{Code::kConflict, 0, "the command has ended", {}};
  }
  CARREL_ASSIGN(Follower follower,
                Follower::begin(visit.stream(), id, {manager::kAtItsEnd, manager::kAtItsEnd}));
  CARREL_TRY(give_all(follower, data, std::chrono::milliseconds(kAnswerMs)));
  if (close == "true") {
    CARREL_TRY(follower.close_input());
    CARREL_TRY(sync(visit));
  }
  return reply_nothing(request);
}

Status post_signal(Request& request) {
  CARREL_ASSIGN(const std::uint64_t id, command_id(request));
  Fields fields(request.body);
  const std::string name = fields.needed_text("signal");
  CARREL_TRY(fields.finish());
  const int number = signal_number(name);
  if (number == 0) {
    return Error{Code::kInvalid, 0, "'" + name + "' is no signal", "a name such as TERM"};
  }
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_ASSIGN(const KnownCommand command, manager::look_at_command(visit.stream(), id));
  if (!command.running) {
    return Error{Code::kConflict, 0, "the command has ended", {}};
  }
  CARREL_ASSIGN(Follower follower,
                Follower::begin(visit.stream(), id, {manager::kAtItsEnd, manager::kAtItsEnd}));
  CARREL_TRY(follower.signal(number));
  CARREL_TRY(sync(visit));
  return reply_nothing(request);
}

Status delete_background(Request& request) {
  CARREL_ASSIGN(const std::uint64_t id, command_id(request));
  CARREL_ASSIGN(Visit visit, visit_of(request));
  CARREL_ASSIGN(const KnownCommand command, manager::look_at_command(visit.stream(), id));
  if (command.running) {
    CARREL_ASSIGN(Follower follower,
                  Follower::begin(visit.stream(), id, {manager::kAtItsEnd, manager::kAtItsEnd}));
    CARREL_TRY(follower.kill());
    for (bool ended = false; !ended;) {
      CARREL_ASSIGN(const Follower::News news, follower.next(kAnswerMs));
      ended = news.kind == Follower::News::Kind::kEnd;
    }
  }
  return reply_nothing(request);
}

}  // namespace carrel::server
