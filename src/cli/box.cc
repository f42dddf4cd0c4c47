#include "cli/box.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "backends/native/groups.h"
#include "backends/native/remains.h"
#include "backends/native/strays.h"
#include "base/files.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "policy/size.h"
#include "storage/events.h"

namespace carrel::cli {

namespace {

constexpr int kGreetMs = 10'000;

// Whether the kernel ended something in the sandbox for want of memory since the last look, and
// what its limit is. The count is kept beside the sandbox's record.
bool out_of_memory(const Connection& connection, std::uint64_t& limit) {
  auto groups = native::find_groups(connection.home, connection.record.cgroup_parent);
  if (!groups.ok()) {
    return false;
  }
  auto group = kernel::Cgroup::open(groups.value(), connection.record.id,
                                    kernel::CgroupOwnership::kBorrowed);
  if (!group.ok()) {
    return false;
  }
  auto work = group.value().open_subgroup(native::kWorkLeaf, kernel::CgroupOwnership::kBorrowed);
  if (!work.ok()) {
    return false;
  }
  const std::string file = connection.record.id + "/oom_kills";
  auto before = read_file_at(connection.home.boxes(), file, 32);
  const std::string now = std::to_string(work.value().oom_kills());
  limit = work.value().usage().memory_peak_bytes.value_or(0);
  if (now == (before.ok() ? before.value() : "0")) {
    return false;
  }
  (void)replace_file_at(connection.home.boxes(), file, now, 0600);
  return true;
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
  Connection connection;
  CARREL_ASSIGN(connection.home, storage::Home::open());
  const std::string named(context.arguments.operands.front());
  CARREL_ASSIGN(connection.record, storage::find_box(connection.home, named));
  auto socket = storage::connect_box(connection.home, connection.record);
  native::sweep_quickly(connection.home);
  if (!socket.ok()) {
    return socket.error();
  }
  connection.stream = sandbox::GuestStream(std::move(socket.value()));
  CARREL_TRY(connection.stream.greet(connection.record.id, kGreetMs));
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
  const std::string text =
      shell ? request.shell_text : [&] {
        std::string joined;
        for (const std::string& word : request.arguments) {
          joined += (joined.empty() ? "" : " ") + word;
        }
        return joined;
      }();
  auto payload = sandbox::encode_start(
      request, input >= 0 ? sandbox::Input::kFollows : sandbox::Input::kNone);
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
                          terminal ? Foreground::Terminal::kYes : Foreground::Terminal::kNo,
                          input);
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
    result = sandbox::serve_command(connection.stream, protocol::FrameType::kStart,
                                    payload.value(), request.timeout, io);
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
  std::uint64_t used = 0;
  if ((end.signal == SIGKILL || end.exit_code == 137) && !end.timed_out && !end.cancelled &&
      out_of_memory(connection, used)) {
    end.oom_killed = true;
    end.reason = "out of memory";
    storage::add_event(connection.home,
                       storage::limit_event(connection.record.id, "memory", used, used));
  }
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
