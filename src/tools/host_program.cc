#include "tools/host_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>

#include "base/files.h"
#include "sandbox/capture.h"

namespace carrel::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kPassedOn = {"PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR"};
constexpr int kHostTickMs = 50;

std::vector<std::string> environment() {
  std::vector<std::string> list;
  for (const char* name : kPassedOn) {
    if (const char* value = ::getenv(name); value != nullptr) {
      list.push_back(std::string(name) + "=" + value);
    }
  }
  return list;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const std::string& word : words) {
    list.push_back(const_cast<char*>(word.c_str()));
  }
  list.push_back(nullptr);
  return list;
}

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return system_error("make a pipe");
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<UniqueFd> input_of(const std::string& text) {
  UniqueFd file(::memfd_create("stdin", MFD_CLOEXEC));
  if (!file.valid()) {
    return system_error("keep the input of a program");
  }
  CARREL_TRY(write_all(file.get(), text));
  if (::lseek(file.get(), 0, SEEK_SET) != 0) {
    return system_error("keep the input of a program");
  }
  return file;
}

Result<pid_t> spawn(const HostProgram& program, int input, int output, int error) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, input, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  ::posix_spawn_file_actions_adddup2(&actions, error, 2);
  if (!program.directory.empty()) {
    ::posix_spawn_file_actions_addchdir_np(&actions, program.directory.c_str());
  }
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> variables = environment();
  variables.insert(variables.end(), program.variables.begin(), program.variables.end());
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, program.arguments.front().c_str(), &actions, &attributes,
                                    pointers(program.arguments).data(), pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    return system_error(failed, "start '" + program.arguments.front() + "'");
  }
  return pid;
}

// Reads what is there; false: that was the end.
bool drain(int fd, sandbox::Capture& capture) {
  std::array<char, 65536> piece;
  const ssize_t size = ::read(fd, piece.data(), piece.size());
  if (size > 0) {
    capture.add({piece.data(), static_cast<std::size_t>(size)});
  }
  return size > 0 || (size < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

Result<sandbox::ExecResult> run_on_host(const HostProgram& program, const Cancel& cancel) {
  CARREL_ASSIGN(const UniqueFd input, input_of(program.input));
  CARREL_ASSIGN(Pipe output, make_pipe());
  CARREL_ASSIGN(Pipe error, make_pipe());
  const Clock::time_point begun = Clock::now();
  CARREL_ASSIGN(const pid_t pid,
                spawn(program, input.get(), output.write.get(),
                      program.streams == HostProgram::Streams::kTogether ? output.write.get()
                                                                         : error.write.get()));
  output.write.reset();
  error.write.reset();

  sandbox::Capture captured[2];
  std::array<UniqueFd*, 2> ends = {&output.read, &error.read};
  int status = 0;
  bool ended = false;
  bool timed_out = false;
  // A child that outlives the program may keep the pipes: their end is not waited for.
  while (!ended) {
    std::array<pollfd, 3> list{{{ends[0]->valid() ? ends[0]->get() : -1, POLLIN, 0},
                                {ends[1]->valid() ? ends[1]->get() : -1, POLLIN, 0},
                                {cancel.fd(), POLLIN, 0}}};
    (void)::poll(list.data(), list.size(), kHostTickMs);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (list[i].revents != 0 && !drain(ends[i]->get(), captured[i])) {
        ends[i]->reset();
      }
    }
    timed_out = timed_out || Clock::now() - begun > program.timeout;
    if (timed_out || list[2].revents != 0) {
      ::kill(-pid, SIGKILL);
    }
    ended = ::waitpid(pid, &status, WNOHANG) == pid;
  }
  ::kill(-pid, SIGKILL);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i]->valid()) {
      ::fcntl(ends[i]->get(), F_SETFL, O_NONBLOCK);
      pollfd look{ends[i]->get(), POLLIN, 0};
      while (::poll(&look, 1, 0) > 0 && drain(ends[i]->get(), captured[i])) {
      }
    }
  }
  if (cancel.asked()) {
    return cancelled();
  }
  sandbox::ExecResult result;
  result.standard_output = captured[0].text();
  result.standard_error = captured[1].text();
  result.truncated = captured[0].cut() || captured[1].cut();
  result.timed_out = timed_out;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  result.exit_code = timed_out           ? sandbox::kExitTimeout
                     : result.signal > 0 ? 128 + result.signal
                                         : WEXITSTATUS(status);
  result.duration_ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun).count();
  return result;
}

}  // namespace carrel::tools
