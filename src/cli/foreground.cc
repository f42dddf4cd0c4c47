#include "cli/foreground.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "base/files.h"
#include "cli/output.h"

namespace carrel::cli {

namespace {

constexpr int kGraceSeconds = 2;
// How long nothing is typed once somebody has noticed that a session is over.
constexpr int kQuietMs = 500;
constexpr std::chrono::seconds kLongestTyping{5};

void add(int poll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

// Whether the command itself left, or whoever typed ended it, and not a limit or somebody else.
bool ended_of_its_own(const sandbox::ExecResult& end) {
  const bool left = end.signal == 0 || end.signal == SIGINT || end.signal == SIGQUIT;
  return left && !end.timed_out && !end.cancelled && !end.oom_killed && !end.disk_limit;
}

}  // namespace

Foreground::Foreground(Mode mode, Terminal terminal, int input) : mode_(mode) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) {
    sigaddset(&set, signal);
  }
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  poll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  add(poll_.get(), signals_.get());
  add(poll_.get(), timer_.get());
  if (terminal == Terminal::kYes && input >= 0 && ::tcgetattr(STDIN_FILENO, &before_) == 0) {
    termios raw = before_;
    ::cfmakeraw(&raw);
    raw_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
  }
  if (terminal == Terminal::kNo && mode == Mode::kPassOn) {
    for (int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      if (::isatty(fd) != 0) {
        filters_[fd == STDOUT_FILENO ? 0 : 1].emplace();
      }
    }
  }
  io_.input = input;
  io_.wake = poll_.get();
  io_.output = [this](protocol::Stream stream, std::string_view data) {
    return take(stream, data);
  };
  io_.on_wake = [this] { return wake(); };
  io_.started = [this](std::uint64_t) { begun_ = true; };
}

Foreground::~Foreground() { restore_terminal(TCSAFLUSH); }

void Foreground::restore_terminal(int when) {
  if (raw_) {
    ::tcsetattr(STDIN_FILENO, when, &before_);
    raw_ = false;
  }
}

Status Foreground::check_terminal(std::string_view what, std::string_view hint) {
  if (::isatty(STDIN_FILENO) != 0) {
    return {};
  }
  return Error{Code::kUnsupported, 0,
               std::string(what) + " needs a terminal to type at, and the standard input is none",
               std::string(hint)};
}

void Foreground::let_signals_through() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void Foreground::terminal_size(std::uint16_t& rows, std::uint16_t& columns) {
  winsize size{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
    rows = size.ws_row;
    columns = size.ws_col;
  }
}

Status Foreground::take(protocol::Stream stream, std::string_view data) {
  const bool out = stream == protocol::Stream::kStdout;
  if (mode_ == Mode::kCollect) {
    (out ? output_ : error_).add(data);
    return {};
  }
  std::optional<TerminalFilter>& filter = filters_[out ? 0 : 1];
  std::string shown;
  if (filter.has_value()) {
    shown = filter->filter(data);
    data = shown;
  }
  Status written = write_all(out ? STDOUT_FILENO : STDERR_FILENO, data);
  if (!written.ok() && written.error().error_number == EPIPE) {
    // Nobody reads any more: the command ends as it would in a pipeline.
    if (!output_closed_) {
      output_closed_ = true;
      itimerspec now{};
      now.it_value.tv_nsec = 1;
      signals_seen_ = 1;
      ::timerfd_settime(timer_.get(), 0, &now, nullptr);
    }
    return {};
  }
  return written;
}

sandbox::CommandIo::Wish Foreground::wake() {
  sandbox::CommandIo::Wish wish;
  std::uint64_t ticks = 0;
  if (::read(timer_.get(), &ticks, sizeof ticks) == static_cast<ssize_t>(sizeof ticks)) {
    wish.kill = true;
  }
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGWINCH) {
      wish.resize = true;
      wish.rows = 24;
      wish.columns = 80;
      terminal_size(wish.rows, wish.columns);
      continue;
    }
    ++signals_seen_;
    wish.signal = signal;
    wish.kill = wish.kill || signals_seen_ > 1;
    itimerspec grace{};
    grace.it_value.tv_sec = kGraceSeconds;
    ::timerfd_settime(timer_.get(), 0, &grace, nullptr);
  }
  return wish;
}

void Foreground::finish(Result<sandbox::ExecResult>& result) {
  const bool session = raw_;
  const bool cut_off = begun_ && !(result.ok() && ended_of_its_own(result.value()));
  if (cut_off) {
    throw_away_input();
  }
  restore_terminal(cut_off ? TCSAFLUSH : TCSADRAIN);
  if (session && cut_off && mode_ == Mode::kPassOn) {
    print_error("carrel: the session in the sandbox is over; what was typed since is not used\n");
  }
  if (result.ok()) {
    collect(result.value());
  }
}

void Foreground::throw_away_input() {
  if (io_.input < 0 || ::isatty(io_.input) == 0) {
    return;
  }
  if (raw_) {
    if (!write_all(STDIN_FILENO, "\a").ok()) {
      (void)write_all(STDERR_FILENO, "\a");
    }
    // Somebody in the middle of a line hears the bell and stops; what does not stop is no person.
    std::array<char, 4096> typed{};
    pollfd wait{io_.input, POLLIN, 0};
    for (const auto end = std::chrono::steady_clock::now() + kLongestTyping;
         std::chrono::steady_clock::now() < end && ::poll(&wait, 1, kQuietMs) == 1 &&
         ::read(io_.input, typed.data(), typed.size()) > 0;) {
    }
  }
  ::tcflush(io_.input, TCIFLUSH);
}

void Foreground::collect(sandbox::ExecResult& result) {
  for (std::size_t i = 0; i < filters_.size(); ++i) {
    if (filters_[i].has_value()) {
      (void)write_all(i == 0 ? STDOUT_FILENO : STDERR_FILENO, filters_[i]->finish());
    }
  }
  result.truncated = output_.cut() || error_.cut();
  result.standard_output = output_.text();
  result.standard_error = error_.text();
  if (output_closed_ && result.cancelled) {
    result.exit_code = 128 + SIGPIPE;
    result.signal = SIGPIPE;
  } else if (signals_seen_ > 0 && result.cancelled) {
    result.exit_code = 128 + SIGINT;
  }
}

void add_causes(const sandbox::ExecResult& result, std::string& line) {
  std::string options;
  for (const sandbox::Cause& cause : result.causes) {
    if (line.find(cause.message) == std::string::npos) {
      line += (line.empty() ? "" : "; ") + cause.message;
    }
    if (line.find(cause.option) == std::string::npos) {
      options += (options.empty() ? "" : ", ") + cause.option;
    }
  }
  if (!options.empty()) {
    line += " (see " + options + ")";
  }
}

int show_result(const Context& context, const sandbox::ExecResult& result) {
  if (context.json()) {
    print(to_json(result) + "\n");
    return result.exit_code;
  }
  const bool told =
      result.exit_code == 0 ||
      (result.signal == 0 && !result.timed_out && !result.oom_killed && !result.process_limit &&
       !result.files_full && result.exit_code != sandbox::kExitNotFound &&
       result.exit_code != sandbox::kExitNotExecutable);
  std::string line;
  if (result.timed_out) {
    line = "timed out after " + std::to_string(result.duration_ms) + " ms";
  } else if (!told && !result.cancelled &&
             result.reason != "exit status " + std::to_string(result.exit_code)) {
    line = result.reason;
  }
  add_causes(result, line);
  if (!line.empty()) {
    print_error("carrel: " + printable(line) + "\n");
  }
  return result.exit_code;
}

}  // namespace carrel::cli
