#include "manager/self.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "base/code_name.h"
#include "base/unique_fd.h"

namespace carrel::manager {
namespace {

constexpr std::size_t kMostOutput = 8U << 20;

struct Pipe {
  UniqueFd from;
  UniqueFd to;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// False at its end.
bool take(int from, std::string& text) {
  std::array<char, 16384> piece{};
  const ssize_t size = ::read(from, piece.data(), piece.size());
  if (size > 0 && text.size() < kMostOutput) {
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  return size > 0 || (size < 0 && errno == EINTR);
}

}  // namespace

Result<SelfRun> run_self(const std::vector<std::string>& words, const SelfOptions& options) {
  CARREL_ASSIGN(Pipe output, make_pipe());
  CARREL_ASSIGN(Pipe errors, make_pipe());
  std::vector<char*> arguments;
  std::string program = "carrel";
  arguments.push_back(program.data());
  std::vector<std::string> copies = words;
  for (std::string& word : copies) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output.to.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, errors.to.get(), 2);
  if (options.keep_open >= 0) {
    ::posix_spawn_file_actions_adddup2(&actions, options.keep_open, 3);
  }
  pid_t child = 0;
  const int failure =
      ::posix_spawn(&child, options.program.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    return system_error(failure, "start this program again");
  }
  output.to.reset();
  errors.to.reset();
  SelfRun run;
  std::array<pollfd, 2> waits{{{output.from.get(), POLLIN, 0}, {errors.from.get(), POLLIN, 0}}};
  while (waits[0].fd >= 0 || waits[1].fd >= 0) {
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) {
      break;
    }
    if (waits[0].revents != 0 && !take(waits[0].fd, run.output)) {
      waits[0].fd = -1;
    }
    if (waits[1].revents != 0 && !take(waits[1].fd, run.errors)) {
      waits[1].fd = -1;
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

Result<std::string> ask_self(const std::vector<std::string>& words, const SelfOptions& options) {
  CARREL_ASSIGN(SelfRun run, run_self(words, options));
  // What was done before something failed is told before the error.
  const std::size_t last =
      run.output.size() < 2 ? std::string::npos : run.output.rfind('\n', run.output.size() - 2);
  if (last != std::string::npos) {
    run.output.erase(0, last + 1);
  }
  const auto answer = nlohmann::json::parse(run.output, nullptr, false);
  if (run.status == 0 && answer.is_object()) {
    return std::move(run.output);
  }
  if (!answer.is_object() || !answer.contains("error") || !answer["error"].is_object()) {
    return Error{Code::kSystem, 0, "'carrel " + words.front() + "' failed", run.errors};
  }
  const auto& error = answer["error"];
  const std::string code = error.value("code", "system");
  Error failure{Code::kSystem, 0, error.value("message", ""), {}};
  for (const Code known :
       {Code::kInvalid, Code::kNotFound, Code::kConflict, Code::kDenied, Code::kUnsupported,
        Code::kUnavailable, Code::kResource, Code::kTimeout, Code::kGone}) {
    if (code_name(known) == code) {
      failure.code = known;
    }
  }
  return failure;
}

void finish_restore_by_self(const std::string& workspace) {
  // Whatever looks at a workspace finishes first what was begun in it.
  (void)run_self({"diff", "--json", "--names", workspace});
}

}  // namespace carrel::manager
