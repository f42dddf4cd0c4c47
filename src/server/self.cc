#include "server/self.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/unique_fd.h"

namespace carrel::server {
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

Result<SelfRun> run_self(const std::vector<std::string>& words) {
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
  pid_t child = 0;
  const int failure =
      ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
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

void finish_restore(const std::string& workspace) {
  // Whatever looks at a workspace finishes first what was begun in it.
  (void)run_self({"diff", "--json", "--names", workspace});
}

}  // namespace carrel::server
