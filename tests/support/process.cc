#include "support/process.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "support/patience.h"

namespace carrel::test {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    give_up("pipe2");
  }
  return ends;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) {
    result.push_back(const_cast<char*>(word.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

void close_fd(int& fd) {
  if (fd >= 0) {
    ::close(fd);
    fd = -1;
  }
}

// What the program refused is in the test's report, whatever the test itself says about it: see
// tests/conformance/conformance.py.
void note_refusal(const std::string& said) {
  static std::string of_test;
  static std::string all;
  const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr || !said.starts_with("carrel: ")) {
    return;
  }
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  if (of_test != name) {
    of_test = name;
    all.clear();
  }
  for (char c : said.substr(0, 500)) {
    all += c >= ' ' && c <= '~' ? c : ' ';
  }
  testing::Test::RecordProperty("refusals", all);
}

// False at the end of the stream.
bool read_into(int fd, std::string& text) {
  std::array<char, 65536> buffer{};
  ssize_t n = ::read(fd, buffer.data(), buffer.size());
  if (n > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

std::string name_of(As as) { return as == As::kRoot ? "root" : "user"; }

void PrintTo(As as, std::ostream* out) { *out << name_of(as); }

namespace {

// Both sides of a terminal: the one to type at and the one of the program.
std::array<int, 2> make_terminal() {
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::array<char, 64> name{};
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0 ||
      ::ptsname_r(master, name.data(), name.size()) != 0) {
    give_up("posix_openpt");
  }
  const int slave = ::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) {
    give_up(name.data());
  }
  return {master, slave};
}

}  // namespace

Process::Process(const Launch& launch) : started_(Clock::now()) {
  std::vector<std::string> words = {launch.program};
  words.insert(words.end(), launch.arguments.begin(), launch.arguments.end());
  const std::vector<char*> arguments = pointers(words);
  const std::vector<char*> environment = pointers(launch.environment);
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (launch.terminal) {
    const auto [master, slave] = make_terminal();
    // The program's user opens it by its name, as /dev/tty.
    if (launch.switch_user && ::fchown(slave, launch.uid, launch.gid) != 0) {
      give_up("fchown");
    }
    in = {slave, master};
    out = {::fcntl(master, F_DUPFD_CLOEXEC, 3), ::fcntl(slave, F_DUPFD_CLOEXEC, 3)};
    err = {-1, ::fcntl(slave, F_DUPFD_CLOEXEC, 3)};
  } else {
    in = make_pipe();
    out = make_pipe();
    err = make_pipe();
  }
  pid_ = ::fork();
  if (pid_ < 0) {
    give_up("fork");
  }
  if (pid_ == 0) {
    // A group of its own, so that a signal at the test's terminal does not reach it.
    if (!launch.terminal) {
      ::setpgid(0, 0);
    } else if (::setsid() < 0 || ::ioctl(in[0], TIOCSCTTY, 0) != 0) {
      give_up("TIOCSCTTY");
    }
    ::signal(SIGPIPE, SIG_DFL);
    const bool ready =
        ::dup2(in[0], 0) == 0 && ::dup2(out[1], 1) == 1 && ::dup2(err[1], 2) == 2 &&
        (!launch.switch_user ||
         (::setgroups(0, nullptr) == 0 && ::setresgid(launch.gid, launch.gid, launch.gid) == 0 &&
          ::setresuid(launch.uid, launch.uid, launch.uid) == 0)) &&
        (launch.directory.empty() || ::chdir(launch.directory.c_str()) == 0);
    if (ready) {
      ::execve(launch.program.c_str(), arguments.data(), environment.data());
    }
    std::perror(launch.program.c_str());
    ::_exit(255);
  }
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  input_ = in[1];
  output_ = out[0];
  error_ = err[0];
  for (int fd : {input_, output_, error_}) {
    if (fd >= 0) {
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
  }
  ::signal(SIGPIPE, SIG_IGN);
}

Process::~Process() {
  if (!ended_) {
    ::kill(pid_, SIGKILL);
    reap(0);
  }
  close_fd(input_);
  close_fd(output_);
  close_fd(error_);
}

void Process::close_input() { close_fd(input_); }
void Process::close_output() { close_fd(output_); }

void Process::send(int signal) const {
  if (!ended_) {
    ::kill(pid_, signal);
  }
}

bool Process::reap(int flags) {
  int status = 0;
  rusage usage{};
  pid_t ended = 0;
  do {
    ended = ::wait4(pid_, &status, flags, &usage);
  } while (ended < 0 && errno == EINTR);
  if (ended != pid_) {
    return false;
  }
  ended_ = true;
  run_.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  run_.max_rss_kib = usage.ru_maxrss;
  run_.duration = std::chrono::duration_cast<milliseconds>(Clock::now() - started_);
  return true;
}

void Process::serve(milliseconds patience, std::string_view* input) {
  std::array<pollfd, 3> waits{
      {{output_, POLLIN, 0}, {error_, POLLIN, 0}, {input == nullptr ? -1 : input_, POLLOUT, 0}}};
  if (::poll(waits.data(), waits.size(), static_cast<int>(patience.count())) <= 0) {
    return;
  }
  if (waits[0].revents != 0 && !read_into(output_, run_.out)) {
    close_fd(output_);
  }
  if (waits[1].revents != 0 && !read_into(error_, run_.err)) {
    close_fd(error_);
  }
  if (waits[2].revents != 0 && input != nullptr) {
    ssize_t n = ::write(input_, input->data(), input->size());
    if (n >= 0) {
      input->remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      close_fd(input_);
    }
  }
}

void Process::write(const std::string& text) {
  std::string_view rest = text;
  const Deadline deadline(std::chrono::seconds(30));
  while (!rest.empty() && input_ >= 0 && !deadline.is_over()) {
    serve(milliseconds(100), &rest);
  }
}

std::size_t Process::type_until_full(const std::string& text) {
  std::size_t typed = 0;
  // Somebody may be reading: it is full when nothing was taken for a while.
  for (Clock::time_point taken = Clock::now(); Clock::now() - taken < milliseconds(500);) {
    const ssize_t n = ::write(input_, text.data(), text.size());
    if (n > 0) {
      typed += static_cast<std::size_t>(n);
      taken = Clock::now();
    } else {
      serve(milliseconds(10), nullptr);
    }
  }
  return typed;
}

bool Process::wait_for_output(const std::string& text, milliseconds patience) {
  const Deadline deadline(patience);
  while (!has_said(text) && output_ >= 0 && !deadline.is_over()) {
    serve(milliseconds(20), nullptr);
  }
  return has_said(text);
}

bool Process::wait_for_error(const std::string& text, milliseconds patience) {
  const Deadline deadline(patience);
  while (run_.err.find(text) == std::string::npos && error_ >= 0 && !deadline.is_over()) {
    serve(milliseconds(20), nullptr);
  }
  return run_.err.find(text) != std::string::npos;
}

bool Process::says_within(milliseconds length, const std::string& text) {
  const Clock::time_point end = Clock::now() + length;
  while (!has_said(text) && output_ >= 0 && Clock::now() < end) {
    serve(milliseconds(5), nullptr);
  }
  return has_said(text);
}

Run Process::wait(milliseconds patience) {
  close_input();
  const Deadline deadline(patience);
  while (!ended_) {
    if (deadline.is_over()) {
      run_.timed_out = true;
      ::kill(pid_, SIGKILL);
      reap(0);
      break;
    }
    // With both streams closed there is nothing to poll but the end itself.
    serve(milliseconds(output_ < 0 && error_ < 0 ? 1 : 20), nullptr);
    reap(WNOHANG);
  }
  // What it wrote before it ended. A descendant can hold the pipes open: no waiting for the end.
  std::size_t before = 0;
  do {
    before = run_.out.size() + run_.err.size();
    serve(milliseconds(0), nullptr);
  } while (run_.out.size() + run_.err.size() > before);
  if (run_.status == 125) {
    note_refusal(run_.err);
  }
  return run_;
}

}  // namespace carrel::test
