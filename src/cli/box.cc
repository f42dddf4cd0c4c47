#include "cli/box.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "backends/native/groups.h"
#include "backends/native/network.h"
#include "backends/native/remains.h"
#include "backends/native/strays.h"
#include "base/files.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "policy/size.h"
#include "policy/spec_json.h"
#include "storage/events.h"
#include "storage/state.h"

namespace carrel::cli {

namespace {

constexpr int kGreetMs = 10'000;

// Whether a count of the sandbox's group has grown since the last look; it is kept in a file beside
// the sandbox's record.
bool has_grown(const Connection& connection, const char* name, std::uint64_t now) {
  const std::string file = connection.record.id + "/" + name;
  const std::string text = std::to_string(now);
  auto before = read_file_at(connection.home.boxes(), file, 32);
  if (text == (before.ok() ? before.value() : "0")) {
    return false;
  }
  (void)replace_file_at(connection.home.boxes(), file, text, 0600);
  return true;
}

// Adds to the end of a command that failed what the sandbox's group counted meanwhile. Returns the
// most memory that was ever used, 0 where nobody counts it.
std::uint64_t ask_group(const Connection& connection, sandbox::ExecResult& end) {
  auto groups = native::find_groups(connection.home, connection.record.cgroup_parent);
  if (!groups.ok()) {
    return 0;
  }
  auto group = kernel::Cgroup::open(groups.value(), connection.record.id,
                                    kernel::CgroupOwnership::kBorrowed);
  if (!group.ok()) {
    return 0;
  }
  auto work = group.value().open_subgroup(native::kWorkLeaf, kernel::CgroupOwnership::kBorrowed);
  if (!work.ok()) {
    return 0;
  }
  if (!end.timed_out && end.exit_code == 128 + SIGKILL &&
      has_grown(connection, "oom_kills", work.value().oom_kills())) {
    end.oom_killed = true;
  }
  if (has_grown(connection, "fork_refusals", work.value().pids_limit_hits())) {
    end.process_limit = true;
  }
  return work.value().usage().memory_peak_bytes.value_or(0);
}

policy::Limits limits_of(const Connection& connection) {
  auto state = storage::State::open(connection.home);
  auto row = state.ok() ? state.value().find(connection.record.id) : state.error();
  if (!row.ok() || !row.value().has_value()) {
    return {};
  }
  auto spec = policy::spec_from_json(row.value()->spec);
  return spec.ok() ? spec.value().limits : policy::Limits{};
}

// A limit that ended or hindered the command is part of its result, and an event.
void tell_limits(const Connection& connection, sandbox::ExecResult& end) {
  if (end.exit_code == 0 || end.cancelled) {
    return;
  }
  const std::uint64_t peak = ask_group(connection, end);
  if (!end.oom_killed && !end.process_limit && !end.disk_limit) {
    return;
  }
  const policy::Limits limits = limits_of(connection);
  const std::string& id = connection.record.id;
  if (end.oom_killed) {
    end.reason = "out of memory";
    storage::add_event(connection.home, storage::limit_event(id, "memory", limits.memory_bytes,
                                                             std::max(peak, limits.memory_bytes)));
  }
  if (end.disk_limit) {
    end.oom_killed = false;
    sandbox::add_disk_limit(end, limits.disk_bytes);
    storage::add_event(connection.home,
                       storage::limit_event(id, "disk", limits.disk_bytes, limits.disk_bytes));
  }
  if (end.process_limit) {
    sandbox::add_process_limit(end, limits.pids);
    storage::add_event(connection.home, storage::limit_event(id, "pids", limits.pids, limits.pids));
  }
}

std::uint64_t characters(const std::string& text) {
  std::uint64_t count = 0;
  for (char c : text) {
    count += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  }
  return count > 0 && text.back() == '\n' ? count - 1 : count;
}

}  // namespace

Result<Connection> connect(const Context& context) {
  return connect_to(std::string(context.arguments.operands.front()));
}

Result<Connection> connect_to(const std::string& named) {
  Connection connection;
  CARREL_ASSIGN(connection.home, storage::Home::open());
  CARREL_ASSIGN(connection.record, storage::find_box(connection.home, named));
  auto socket = storage::connect_box(connection.home, connection.record);
  native::sweep_quickly(connection.home);
  if (!socket.ok()) {
    return socket.error();
  }
  connection.stream = sandbox::GuestStream(std::move(socket.value()));
  Status greeted = connection.stream.greet(connection.record.id, kGreetMs);
  if (!greeted.ok() && greeted.error().code == Code::kGone) {  // it ended at this moment
    greeted.error().message = "sandbox " + connection.record.id + " has ended";
    greeted.error().hint = "'carrel info' says why";
  }
  CARREL_TRY(greeted);
  // Where that fails its commands run, and have no network.
  (void)native::ensure_network(connection.home, connection.record.id);
  return connection;
}

std::chrono::milliseconds timeout_for(const Context& context, const storage::BoxRecord& record) {
  for (const Arguments::GivenSetting& given : context.arguments.settings) {
    if (given.setting->name == "timeout") {
      auto timeout = policy::parse_duration({given.name, given.value});
      if (timeout.ok()) {
        return timeout.value();
      }
    }
  }
  return std::chrono::milliseconds(record.timeout_ms);
}

int run_in_box(const Context& context, Connection& connection, sandbox::CommandRequest request,
               int input) {
  const bool shell = request.arguments.empty();
  const std::string text = shell ? request.shell_text : [&] {
    std::string joined;
    for (const std::string& word : request.arguments) {
      joined += (joined.empty() ? "" : " ") + word;
    }
    return joined;
  }();
  auto payload =
      sandbox::encode_start(request, input >= 0 ? sandbox::Input::kFollows : sandbox::Input::kNone);
  if (!payload.ok()) {
    return fail(context, payload.error());
  }
  storage::add_event(connection.home, storage::command_event(connection.record.id, text));
  const bool terminal = request.terminal;
  // The count of characters goes into the log whether or not the output is shown as it comes.
  std::string counted_tail;
  std::uint64_t seen = 0;
  Result<sandbox::ExecResult> result = Error{};
  {
    Foreground foreground(context.json() ? Foreground::Mode::kCollect : Foreground::Mode::kPassOn,
                          terminal ? Foreground::Terminal::kYes : Foreground::Terminal::kNo, input);
    sandbox::CommandIo io = foreground.io();
    auto pass = io.output;
    io.output = [&](protocol::Stream stream, std::string_view data) {
      if (stream == protocol::Stream::kStdout) {
        const std::string piece(data);
        seen += characters(piece) + (!piece.empty() && piece.back() == '\n' ? 1 : 0);
        counted_tail = piece.empty() ? counted_tail : piece.substr(piece.size() - 1);
      }
      return pass(stream, data);
    };
    result = sandbox::serve_command(connection.stream, protocol::FrameType::kStart, payload.value(),
                                    request.timeout, io);
    if (result.ok()) {
      foreground.finish(result.value());
    }
  }
  if (!result.ok()) {
    if (result.error().code == Code::kGone) {
      result.error().message = "sandbox " + connection.record.id + " ended while the command ran";
      result.error().hint = "'carrel info' says why";
    }
    return fail(context, result.error());
  }
  sandbox::ExecResult& end = result.value();
  tell_limits(connection, end);
  if (shell && end.reason == "command not found") {
    end.reason = "there is no bash in this sandbox's image";
  }
  storage::CommandOutcome outcome;
  outcome.exit_code = end.exit_code;
  outcome.cwd = end.cwd;
  outcome.stdout_chars = seen - (counted_tail == "\n" && seen > 0 ? 1 : 0);
  outcome.command_bytes = text.size();
  outcome.reason = end.reason;
  outcome.duration_ms = end.duration_ms;
  outcome.shell_restarted = end.shell_restarted;
  storage::add_event(connection.home, storage::result_event(connection.record.id, outcome));
  return show_result(context, end);
}

}  // namespace carrel::cli
