#include "mcp/sandboxed_server.h"

#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "backends/native/network.h"
#include "backends/native/one_shot.h"
#include "manager/box_command.h"
#include "manager/once.h"
#include "manager/walls.h"
#include "mcp/server_pipes.h"
#include "storage/box_use.h"

namespace carrel::mcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{1000};  // to end by itself, once its input is closed
constexpr milliseconds kForever{protocol::kMaxTimeoutMs};

class SandboxedProcess final : public ServerProcess {
 public:
  SandboxedProcess(RunCommand run, PipePair pipes, UniqueFd stop)
      : run_(std::move(run)),
        ours_(std::move(pipes.ours)),
        theirs_(std::move(pipes.theirs)),
        stop_(std::move(stop)),
        thread_([this] { serve(); }) {}

  ~SandboxedProcess() override {
    ours_.input.reset();
    if (wait_for_end(kGrace).empty()) {
      (void)::eventfd_write(stop_.get(), 1);
    }
    thread_.join();
  }

  [[nodiscard]] int input() const override { return ours_.input.get(); }
  [[nodiscard]] int output() const override { return ours_.output.get(); }
  [[nodiscard]] int errors() const override { return ours_.errors.get(); }

  std::string wait_for_end(milliseconds patience) override {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, patience, [this] { return !end_.empty(); });
    return end_;
  }

 private:
  void serve() {
    sandbox::CommandIo io;
    io.input = theirs_.input.get();
    io.output = [this](protocol::Stream stream, std::string_view data) {
      return pass_on(stream == protocol::Stream::kStdout ? theirs_.output : theirs_.errors, data);
    };
    io.wake = stop_.get();
    io.on_wake = [this] {
      eventfd_t count = 0;
      (void)::eventfd_read(stop_.get(), &count);
      stopping_ = true;
      return sandbox::CommandIo::Wish{.kill = true};
    };
    const auto result = run_(io);
    std::string end = result.ok() ? result.value().reason : result.error().to_string();
    if (end.empty()) {
      end = "exit status 0";
    }
    theirs_ = {};
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    ended_.notify_all();
  }

  // Waits for whoever reads, unless it is over. The reader's end is open as long as this thread
  // runs: there is nobody to be told that it is not.
  Status pass_on(const UniqueFd& pipe, std::string_view data) {
    while (!data.empty()) {
      std::array<pollfd, 2> waits{{{pipe.get(), POLLOUT, 0}, {stop_.get(), POLLIN, 0}}};
      if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) {
        return system_error("wait for the reader of an MCP server");
      }
      if (stopping_ || waits[1].revents != 0) {
        return Error{Code::kGone, 0, "nobody reads what the MCP server says", {}};
      }
      if ((waits[0].revents & POLLOUT) == 0) {
        continue;
      }
      // A pipe that can be written to takes this much at once.
      const std::string_view part = data.substr(0, PIPE_BUF);
      const ssize_t size = ::write(pipe.get(), part.data(), part.size());
      if (size < 0 && errno != EINTR) {
        return system_error("pass on what an MCP server says");
      }
      data.remove_prefix(size > 0 ? static_cast<std::size_t>(size) : 0);
    }
    return {};
  }

  RunCommand run_;
  ServerPipes ours_;
  ServerPipes theirs_;
  UniqueFd stop_;
  bool stopping_ = false;  // for the thread
  std::mutex mutex_;       // for the end
  std::condition_variable ended_;
  std::string end_;
  std::thread thread_;  // last: it uses the others
};

sandbox::CommandRequest to_request(const ServerCommand& command) {
  sandbox::CommandRequest request;
  request.arguments = command.words;
  request.environment = command.environment;
  request.workdir = command.directory;
  request.timeout = kForever;
  return request;
}

Result<sandbox::ExecResult> run_once(storage::Home& home, const NewSandbox& sandbox,
                                     const ServerCommand& command, const sandbox::CommandIo& io) {
  native::OneShot job;
  job.spec = sandbox.spec;
  job.spec.limits.timeout = kForever;
  job.command = to_request(command);
  CARREL_TRY(native::check_network(home, job.spec));
  if (sandbox.open_mounts) {
    CARREL_ASSIGN(job.trees, sandbox.open_mounts(job.spec));
  }
  manager::OnceHeld held;
  CARREL_TRY(manager::prepare_once(home, sandbox.chosen, {}, job, held));
  return native::OneShots(home, manager::find_walls).run(job, io);
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> start_with(RunCommand run) {
  CARREL_ASSIGN(PipePair pipes, make_pipes());
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) {
    return system_error("make an event");
  }
  return std::unique_ptr<ServerProcess>(
      std::make_unique<SandboxedProcess>(std::move(run), std::move(pipes), std::move(stop)));
}

SandboxStarter in_new_sandbox(storage::Home& home, NewSandbox sandbox) {
  return [&home, sandbox = std::move(sandbox)](
             const ServerCommand& command) -> Result<std::unique_ptr<ServerProcess>> {
    if (!sandbox.spec.mounts.empty() && !sandbox.open_mounts) {
      return Error{Code::kUnsupported, 0, "a sandbox of an MCP server has no mounts here", {}};
    }
    return start_with([&home, sandbox, command](const sandbox::CommandIo& io) {
      return run_once(home, sandbox, command, io);
    });
  };
}

SandboxStarter in_sandbox(const storage::Home& home, storage::BoxRecord record) {
  return [&home, record = std::move(record)](const ServerCommand& command) {
    return start_with(
        [&home, record, command](const sandbox::CommandIo& io) -> Result<sandbox::ExecResult> {
          CARREL_ASSIGN(const storage::BoxUse use, storage::BoxUse::begin(home, record.id));
          CARREL_ASSIGN(sandbox::GuestStream stream, manager::connect(home, record));
          return manager::run_in_box({home, record}, stream, to_request(command), io);
        });
  };
}

}  // namespace carrel::mcp
