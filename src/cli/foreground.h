#pragma once

#include <termios.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cli/context.h"
#include "cli/terminal_filter.h"
#include "sandbox/capture.h"
#include "sandbox/command.h"
#include "sandbox/exec_result.h"

namespace carrel::cli {

// A command in the foreground of this terminal: its output is passed on as it comes, or collected
// for --json; signals are forwarded, and a second one, or two seconds without an end, kills.
class Foreground {
 public:
  enum class Mode { kPassOn, kCollect };
  enum class Terminal { kNo, kYes };

  Foreground(Mode mode, Terminal terminal, int input);
  ~Foreground();
  Foreground(const Foreground&) = delete;
  Foreground& operator=(const Foreground&) = delete;

  // The io for sandbox::serve_command; valid as long as this object.
  const sandbox::CommandIo& io() const { return io_; }

  // Ctrl-C ends this program and not the command.
  static void let_signals_through();

  // Puts what was collected into the result. Where the command did not end of its own accord, what
  // was typed for it must not reach whatever reads the terminal next: it is thrown away, until
  // nothing more is typed, and a session in a terminal says so and rings the bell.
  void finish(Result<sandbox::ExecResult>& result);

  // The error of a command that is to have a terminal where there is none to type at.
  static Status check_terminal(std::string_view what, std::string_view hint);

  // The size of this terminal, for the command's.
  static void terminal_size(std::uint16_t& rows, std::uint16_t& columns);

 private:
  void collect(sandbox::ExecResult& result);
  void throw_away_input();
  void restore_terminal(int when);
  Status take(protocol::Stream stream, std::string_view data);
  sandbox::CommandIo::Wish wake();

  Mode mode_;
  // Output to a terminal that the command does not own is made harmless first.
  std::array<std::optional<TerminalFilter>, 2> filters_;
  sandbox::CommandIo io_;
  sandbox::Capture output_;
  sandbox::Capture error_;
  UniqueFd signals_;
  UniqueFd timer_;
  UniqueFd poll_;
  int signals_seen_ = 0;
  bool output_closed_ = false;
  bool begun_ = false;
  bool raw_ = false;
  termios before_{};
};

// What -t suggests where nobody can type.
inline constexpr std::string_view kWithoutTerminal =
    "leave out -t, or add --no-stdin for a terminal in which nobody types";

// Adds to the line what is known to have hindered the command and is not in it yet, each with the
// option that changes it.
void add_causes(const sandbox::ExecResult& result, std::string& line);

// The exit status of a command that was run in the foreground, with a line on stderr about what
// ended it where the status alone does not tell. With --json one object instead.
int show_result(const Context& context, const sandbox::ExecResult& result);

}  // namespace carrel::cli
