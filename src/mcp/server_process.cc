#include "mcp/server_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "mcp/server_pipes.h"
#include "policy/given.h"

namespace carrel::mcp {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kProcessGrace{1000};  // to end by itself, once its input is closed
constexpr milliseconds kTermGrace{500};      // to end after it was asked to
constexpr milliseconds kLook{5};

constexpr std::array<std::string_view, 12> kPassedOn = {
    "PATH", "HOME",   "USER",     "LOGNAME", "SHELL",  "TERM",
    "LANG", "LC_ALL", "LC_CTYPE", "TZ",      "TMPDIR", "XDG_RUNTIME_DIR"};

std::vector<std::string> environment_for(const ServerCommand& command) {
  std::vector<std::string> environment;
  for (const std::string_view name : kPassedOn) {
    const std::string variable(name);
    if (const char* value = ::getenv(variable.c_str()); value != nullptr) {
      environment.push_back(variable + "=" + value);
    }
  }
  for (const std::string& given : command.environment) {
    const std::string name = given.substr(0, given.find('=') + 1);
    std::erase_if(environment, [&](const std::string& one) { return one.starts_with(name); });
    environment.push_back(given);
  }
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) {
    list.push_back(text.data());
  }
  list.push_back(nullptr);
  return list;
}

std::string words_for(const siginfo_t& end) {
  return (end.si_code == CLD_EXITED ? "exit status " : "signal ") + std::to_string(end.si_status);
}

class HostProcess final : public ServerProcess {
 public:
  HostProcess(pid_t child, ServerPipes pipes) : child_(child), pipes_(std::move(pipes)) {}
  ~HostProcess() override {
    pipes_.input.reset();
    pipes_.output.reset();
    pipes_.errors.reset();
    if (wait_for_end(kProcessGrace).empty()) {
      ::kill(-child_, SIGTERM);
      (void)wait_for_end(kTermGrace);
    }
    // It, or what it started and left behind: until it is waited for, its number is its own.
    ::kill(-child_, SIGKILL);
    while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  [[nodiscard]] int input() const override { return pipes_.input.get(); }
  [[nodiscard]] int output() const override { return pipes_.output.get(); }
  [[nodiscard]] int errors() const override { return pipes_.errors.get(); }

  std::string wait_for_end(milliseconds patience) override {
    const Clock::time_point deadline = Clock::now() + patience;
    while (end_.empty()) {
      siginfo_t end{};
      const int asked =
          ::waitid(P_PID, static_cast<id_t>(child_), &end, WEXITED | WNOHANG | WNOWAIT);
      if (asked == 0 && end.si_pid == child_) {
        end_ = words_for(end);
      } else if (asked != 0 && errno != EINTR) {
        end_ = "an end that somebody else saw";
      } else if (Clock::now() >= deadline) {
        break;
      } else {
        std::this_thread::sleep_for(kLook);
      }
    }
    return end_;
  }

 private:
  pid_t child_;
  ServerPipes pipes_;
  std::string end_;
};

}  // namespace

Result<std::unique_ptr<ServerProcess>> start_on_host(const ServerCommand& command) {
  CARREL_ASSIGN(PipePair pipes, make_pipes());
  std::vector<std::string> words = command.words;
  std::vector<std::string> environment = environment_for(command);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipes.theirs.input.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipes.theirs.output.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, pipes.theirs.errors.get(), 2);
  if (!command.directory.empty()) {
    ::posix_spawn_file_actions_addchdir_np(&actions, command.directory.c_str());
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, words.front().c_str(), &actions, &attributes,
                                     pointers(words).data(), pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    Error error = system_error(failure, "start " + policy::quote(words.front()));
    error.code = failure == ENOENT ? Code::kNotFound : Code::kSystem;
    return error;
  }
  return std::unique_ptr<ServerProcess>(
      std::make_unique<HostProcess>(child, std::move(pipes.ours)));
}

}  // namespace carrel::mcp
