#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "backends/native/network.h"
#include "base/base64.h"
#include "base/files.h"
#include "base/utf8.h"
#include "http/event_stream.h"
#include "manager/box_command.h"
#include "manager/once.h"
#include "manager/self.h"
#include "policy/names.h"
#include "sandbox/capture.h"
#include "sandbox/result_json.h"
#include "server/handlers.h"
#include "server/service.h"
#include "server/spec_input.h"

// Commands that a request waits for: its answer is their end.
namespace carrel::server {
namespace {

// The client's side of a command: its output, gathered or sent on as it comes, and its leaving,
// which ends the command.
class Attendance {
 public:
  // kAtEnd: also to a client that would take events.
  enum class Answer { kAsAccepted, kAtEnd };
  explicit Attendance(Request& request, Answer answer = Answer::kAsAccepted)
      : request_(request), answer_(answer) {}

  Status begin(const std::optional<std::string>& input) {
    const std::string* accept = request_.connection.head().find("accept");
    streams_ =
        answer_ == Answer::kAsAccepted && accept != nullptr && *accept == "text/event-stream";
    CARREL_ASSIGN(watch_, watch_client(request_.socket));
    if (input.has_value()) {
      input_ = UniqueFd(::memfd_create("stdin", MFD_CLOEXEC));
      if (!input_.valid()) {
        return system_error("keep the command's input");
      }
      CARREL_TRY(write_all(input_.get(), *input));
      if (::lseek(input_.get(), 0, SEEK_SET) != 0) {
        return system_error("keep the command's input");
      }
    }
    io_.input = input_.get();
    io_.wake = watch_.get();
    io_.output = [this](protocol::Stream stream, std::string_view data) {
      return take(stream, data);
    };
    io_.on_wake = [this] { return on_leave(); };
    return {};
  }
  // What is to be done once, while the command is at work.
  void do_meanwhile(std::function<void()> what) {
    io_.started = [what = std::move(what)](std::uint64_t) { what(); };
  }
  [[nodiscard]] const sandbox::CommandIo& io() const { return io_; }

  Status finish(sandbox::ExecResult& result) {
    if (streams_) {
      CARREL_TRY(begin_stream());
      CARREL_TRY(
          request_.connection.send(http::write_event({"", "exit", sandbox::to_json(result)})));
      return request_.connection.finish();
    }
    gather(result);
    return reply_bytes(request_, "application/json", sandbox::to_json(result) + "\n");
  }
  // What was not sent on becomes part of the result.
  void gather(sandbox::ExecResult& result) {
    result.standard_output = output_.text();
    result.standard_error = error_.text();
    result.truncated = output_.cut() || error_.cut();
  }

 private:
  Status begin_stream() {
    if (begun_) {
      return {};
    }
    begun_ = true;
    return begin_events(request_);
  }

  Status take(protocol::Stream stream, std::string_view data) {
    const bool out = stream == protocol::Stream::kStdout;
    if (!streams_) {
      (out ? output_ : error_).add(data);
      return {};
    }
    // A client that has gone or is too slow: on_leave() sees to the command.
    if (!gone_) {
      gone_ = !begin_stream().ok() ||
              !request_.connection
                   .send(http::write_event(
                       {"", out ? "stdout" : "stderr", Json{{"data_b64", base64(data)}}.dump()}))
                   .ok();
    }
    return {};
  }

  sandbox::CommandIo::Wish on_leave() {
    ::epoll_ctl(watch_.get(), EPOLL_CTL_DEL, request_.socket, nullptr);
    sandbox::CommandIo::Wish wish;
    wish.kill = true;
    gone_ = true;
    return wish;
  }

  Request& request_;
  Answer answer_;
  sandbox::CommandIo io_;
  UniqueFd watch_;
  UniqueFd input_;
  sandbox::Capture output_;
  sandbox::Capture error_;
  bool streams_ = false;
  bool begun_ = false;
  bool gone_ = false;
};

// A command in the trace of its request. What was run is nobody's business there.
void tell_trace(Request& request, const std::string& id, const char* name, std::int64_t began_ns,
                const Result<sandbox::ExecResult>& result) {
  if (!request.trace.wanted()) {
    return;
  }
  Span span{Traces::within(request.trace), name, Span::Kind::kInternal, began_ns, wall_clock_ns(),
            Span::Outcome::kUnset,         {}};
  if (!id.empty()) {
    span.attributes.emplace_back("carrel.sandbox", id);
  }
  if (result.ok()) {
    span.attributes.emplace_back("process.exit.code", result.value().exit_code);
    span.attributes.emplace_back("carrel.timed_out", result.value().timed_out);
  } else {
    span.outcome = Span::Outcome::kFailed;
  }
  request.service.traces->add(std::move(span));
}

Result<sandbox::ExecResult> attend(Request& request, const std::string& id, CommandOrder& order,
                                   const Attendance& attendance) {
  Service& service = request.service;
  CARREL_ASSIGN(manager::Manager::Visit visit, service.manager->visit(request.caller, id));
  order.command.timeout =
      order.timeout.value_or(std::chrono::milliseconds(visit.record().timeout_ms));
  service.counters.commands.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t began_ns = wall_clock_ns();
  auto result = manager::run_in_box({service.manager->home(), visit.record()}, visit.stream(),
                                    order.command, attendance.io());
  tell_trace(request, id, order.command.arguments.empty() ? "shell" : "exec", began_ns, result);
  if (result.ok()) {
    visit.keep_stream();
  }
  return result;
}

Status run_in_sandbox(Request& request, CommandOrder order) {
  Attendance attendance(request);
  CARREL_TRY(attendance.begin(order.input));
  auto result = attend(request, request.id(), order, attendance);
  if (!result.ok()) {
    return request.service.manager->explain_end(request.id(), std::move(result.error()));
  }
  return attendance.finish(result.value());
}

}  // namespace

Status read_shell(Fields& fields, sandbox::CommandRequest& command) {
  command.shell_text = fields.needed_text("command");
  command.session = fields.text("session").value_or("");
  command.merged = fields.flag("merged").value_or(false);
  return {};
}

Status read_exec(Fields& fields, sandbox::CommandRequest& command) {
  auto argv = fields.texts("argv");
  if (argv.has_value() && (argv->empty() || argv->front().empty())) {
    return Error{Code::kInvalid, 0, "'argv' names no program", {}};
  }
  command.arguments = std::move(argv).value_or(std::vector<std::string>());
  command.environment = fields.variables("env");
  const std::string workdir = fields.text("workdir").value_or("");
  if (!workdir.empty()) {
    CARREL_ASSIGN(command.workdir, policy::normalize_path({"workdir", workdir}));
  }
  command.merged = fields.flag("merged").value_or(false);
  return {};
}

Status run_shell(Request& request) {
  Fields fields(request.body);
  CommandOrder order;
  CARREL_TRY(read_shell(fields, order.command));
  order.timeout = fields.duration("timeout");
  order.input = fields.text("stdin");
  CARREL_TRY(fields.finish());
  return run_in_sandbox(request, std::move(order));
}

Status run_exec(Request& request) {
  Fields fields(request.body);
  CommandOrder order;
  CARREL_TRY(read_exec(fields, order.command));
  order.timeout = fields.duration("timeout");
  order.input = fields.text("stdin");
  CARREL_TRY(fields.finish());
  if (order.command.arguments.empty()) {
    return Error{Code::kInvalid, 0, "'argv' is missing", {}};
  }
  return run_in_sandbox(request, std::move(order));
}

Result<std::optional<CommandOrder>> read_first(const Json* given) {
  if (given == nullptr) {
    return std::optional<CommandOrder>();
  }
  if (!given->is_object()) {
    return Error{Code::kInvalid, 0, "'run' is not an object", {}};
  }
  auto has = [&](const char* name) {
    const auto found = given->find(name);
    return found != given->end() && !found->is_null();
  };
  const bool program = has("argv");
  if (program == has("command")) {
    return Error{Code::kInvalid, 0, "'run' needs one of 'argv' and 'command'", {}};
  }
  Fields fields(*given, "'run'");
  fields.allow(program ? "command" : "argv");
  CommandOrder order;
  CARREL_TRY(program ? read_exec(fields, order.command) : read_shell(fields, order.command));
  order.timeout = fields.duration("timeout");
  order.input = fields.text("stdin");
  CARREL_TRY(fields.finish());
  if (program && order.command.arguments.empty()) {
    return Error{Code::kInvalid, 0, "'argv' is missing", {}};
  }
  return std::optional<CommandOrder>(std::move(order));
}

Result<Json> run_first(Request& request, const std::string& id, CommandOrder order,
                       const std::function<void()>& meanwhile) {
  Attendance attendance(request, Attendance::Answer::kAtEnd);
  attendance.do_meanwhile(meanwhile);
  Status begun = attendance.begin(order.input);
  auto result = begun.ok() ? attend(request, id, order, attendance)
                           : Result<sandbox::ExecResult>(begun.error());
  if (!result.ok()) {
    // Its client does not get to know the sandbox.
    Error error = request.service.manager->explain_end(id, std::move(result.error()));
    (void)request.service.manager->remove(request.caller, id, 0);
    return error;
  }
  attendance.gather(result.value());
  return Json::parse(sandbox::to_json(result.value()), nullptr, false);
}

Status run_once(Request& request) {
  Service& service = request.service;
  storage::Home& home = service.manager->home();
  native::OneShot job;
  job.spec = service.run_defaults;
  manager::Chosen chosen;
  Fields fields(request.body);
  CARREL_TRY(read_settings(request.body, policy::Operation::kRun, fields, job.spec, chosen));
  const auto argv = fields.texts("argv");
  const auto text = fields.text("command");
  const auto input = fields.text("stdin");
  job.command.merged = fields.flag("merged").value_or(false);
  CARREL_TRY(fields.finish());
  if (argv.has_value() == text.has_value()) {
    return Error{Code::kInvalid, 0, "one of 'argv' and 'command' is needed", {}};
  }
  job.command.arguments = argv.has_value() ? *argv : std::vector<std::string>{"bash", "-c", *text};
  CARREL_TRY(check_settings(request, service.run_defaults, job.spec));
  CARREL_TRY(native::check_network(home, job.spec));
  CARREL_ASSIGN(const auto place, service.manager->hold_once(request.caller, job.spec.limits));
  CARREL_ASSIGN(job.trees, open_trees(request, job.spec));
  manager::OnceHeld held;
  CARREL_TRY(manager::prepare_once(home, chosen, manager::finish_restore_by_self, job, held));
  Attendance attendance(request);
  CARREL_TRY(attendance.begin(input));
  service.counters.commands.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t began_ns = wall_clock_ns();
  auto result = service.one_shots->run(job, attendance.io());
  tell_trace(request, {}, "run", began_ns, result);
  return result.ok() ? attendance.finish(result.value()) : Status(result.error());
}

}  // namespace carrel::server
