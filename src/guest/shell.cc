#include "guest/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/processes.h"
#include "guest/program.h"
#include "guest/requests.h"
#include "guest/runtime.h"
#include "guest/shell_files.h"
#include "guest/shell_outputs.h"
#include "guest/shell_start.h"

namespace carrel::guest {

namespace {

// Most commands have ended before this, and then their outputs are read once, with their end.
constexpr std::uint64_t kPatienceUs = 1000;

std::uint32_t shell_index(const Guest& guest, const Shell& shell) {
  return static_cast<std::uint32_t>(&shell - guest.shells.data());
}

// The end of a command that never came to its turn.
void end_waiting(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  command.state = CommandState::kRunning;
  if (command.started_us == 0) {
    command.started_us = now_us();
  }
}

// The shell gets no more commands and makes room for another. Its number is its own until its end
// is told.
void replace(Shell& shell) {
  shell.unfit = true;
  if (shell.report >= 0 && shell.pid > 1) {
    kill(shell.pid, SIGKILL);
  }
}

void begin(Guest& guest, Shell& shell, std::uint32_t index) {
  Command& command = guest.commands[index];
  command.state = CommandState::kRunning;
  command.started_us = now_us();
  command.started_wall_ms = wall_clock_ms();
  command.started_ticks = ticks_now();
  command.deadline_us = command.started_us + command.timeout_us;
  command.program = shell.pid;
  shell.state = ShellState::kBusy;
  shell.command = index;
  shell.patience_us = command.started_us + kPatienceUs;
  if (shell.restarted) {
    command.end.flags |= protocol::kExitShellRestarted;
    shell.restarted = false;
  }
  make_nonce(shell.nonce);
  if (!lay_out(guest, shell, index)) {
    int reason = errno;
    replace(shell);
    note_not_started(guest, index, reason);
  } else if (write(shell.wake, "\n", 1) != 1) {
    shell.unran = true;  // it closed its side
    replace(shell);
  }
}

// Gives the oldest waiting command of this shell its turn.
void run_next(Guest& guest, Shell& shell) {
  std::uint32_t index = shell_index(guest, shell);
  std::uint32_t next = kNone;
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    const Command& command = guest.commands[i];
    if (command.state == CommandState::kQueued && command.shell == index &&
        (next == kNone || command.id < guest.commands[next].id)) {
      next = i;
    }
  }
  if (next == kNone || shell.unfit) {
    return;
  }
  if (shell.state == ShellState::kIdle && shell.pid != 0) {
    begin(guest, shell, next);
  } else if (shell.state == ShellState::kFree) {
    int result = start_shell(guest, shell);
    guest.commands[next].deadline_us = now_us() + guest.commands[next].timeout_us;
    if (result < 0) {
      end_waiting(guest, next);
      note_not_started(guest, next, -result);
    }
  }
}

// Where the shell stands, as the kernel tells it. When it is gone: where the next one begins.
void note_directory(const Guest& guest, const Shell& shell, Command& command) {
  char buffer[protocol::kMaxPath];
  ssize_t n = shell.proc < 0 ? -1 : readlinkat(shell.proc, "cwd", buffer, sizeof buffer);
  std::string_view path =
      n > 0 ? std::string_view(buffer, static_cast<std::size_t>(n)) : guest.boot.workdir;
  bool near = path.size() < sizeof command.near_cwd;
  command.cwd = near ? command.near_cwd : static_cast<char*>(malloc(path.size() + 1));
  if (command.cwd != nullptr) {
    memcpy(command.cwd, path.data(), path.size());
    command.cwd[path.size()] = '\0';
  }
}

void finish(Guest& guest, Shell& shell, int wait_status) {
  std::uint32_t index = shell.command;
  shell.command = kNone;
  shell.patience_us = 0;
  if (index == kNone) {
    return;
  }
  Command& command = guest.commands[index];
  free_text(guest, command);
  if (command.state == CommandState::kRunning) {
    take_back_outputs(guest, shell, index);
    keep_little_text(shell);
    note_end(guest, index, wait_status);
  }
}

// A command that its shell provably never ran goes to a fresh one, once. Returns whether it does.
bool queue_again(Guest& guest, Shell& shell) {
  Command* command = shell.command == kNone ? nullptr : &guest.commands[shell.command];
  if (command == nullptr || command->again || command->state != CommandState::kRunning ||
      command->end.kind != protocol::EndKind::kExited) {
    return false;
  }
  for (OutputStream& stream : command->output) {
    guest.poller.close(stream.fd);
  }
  command->again = true;
  command->lasting = false;
  command->state = CommandState::kQueued;
  shell.command = kNone;
  shell.patience_us = 0;
  return true;
}

bool read_status(std::string_view text, std::size_t at, std::uint32_t& status) {
  text.remove_prefix(at);
  if (text.empty() || text.size() > 3) {
    return false;
  }
  status = 0;
  for (char c : text) {
    if (c < '0' || c > '9') {
      return false;
    }
    status = status * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return true;
}

void handle_line(Guest& guest, Shell& shell, std::string_view line) {
  if (shell.state == ShellState::kStarting) {
    if (line == "ready") {
      shell.state = ShellState::kIdle;
      if (shell.report >= 0) {
        run_next(guest, shell);
      }
    }
    return;
  }
  if (shell.state != ShellState::kBusy) {
    return;
  }
  // Anything may have been written to this descriptor before the real answer, even on its line. An
  // answer without a nonce is one of a shell whose command read it away: its last.
  std::size_t at = line.find(shell.nonce);
  bool bare = at == std::string_view::npos;
  if (bare && !line.starts_with(' ')) {
    return;
  }
  line.remove_prefix(bare ? 1 : at + 16);
  // The kind is 0 when the command was begun; a command that took the variable away certainly was.
  bool gone = line.starts_with("  ");
  bool ran = gone || line.starts_with(" 0 ");
  std::uint32_t status = 0;
  if (!(ran || line.starts_with(" 1 ") || line.starts_with(" 2 ")) ||
      !read_status(line, gone ? 2 : 3, status)) {
    return;
  }
  if (!ran && !bare && !guest.commands[shell.command].again) {
    shell.unran = true;  // no descriptors left, for instance
    replace(shell);
    return;
  }
  shell.last_status = status & 255;
  note_directory(guest, shell, guest.commands[shell.command]);
  if (bare || shell.adopted) {
    replace(shell);
  }
  shell.state = ShellState::kIdle;
  finish(guest, shell, static_cast<int>(shell.last_status << 8));
  if (shell.report >= 0) {  // otherwise it is over
    run_next(guest, shell);
  }
}

// Reads what the shell said. False when there is nothing more.
bool hear(Guest& guest, Shell& shell) {
  char buffer[512];
  ssize_t n = read(shell.control, buffer, sizeof buffer);
  if (n <= 0) {
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      shell.unfit = true;
      guest.poller.close(shell.control);
    }
    return false;
  }
  for (ssize_t i = 0; i < n; ++i) {
    if (buffer[i] != '\n') {
      // Only the end of a line can be the answer; a flood without one just rolls over.
      if (shell.line_size == sizeof shell.line) {
        memmove(shell.line, shell.line + sizeof shell.line / 2, sizeof shell.line / 2);
        shell.line_size = sizeof shell.line / 2;
      }
      shell.line[shell.line_size++] = buffer[i];
      continue;
    }
    std::string_view line(shell.line, shell.line_size);
    shell.line_size = 0;
    handle_line(guest, shell, line);
  }
  return true;
}

// The end of everybody who waits for a shell that did not start, for the reason in `report`.
void refuse_waiting(Guest& guest, std::uint32_t shell, const Report& report) {
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    const Command& command = guest.commands[i];
    if (command.state != CommandState::kQueued || command.shell != shell) {
      continue;
    }
    int reason = report.kind == ReportKind::kEnded ? ECANCELED : static_cast<int>(report.value);
    if (report.kind == ReportKind::kNoWorkdir) {
      refuse_for_workdir(guest, i, reason);
    } else {
      end_waiting(guest, i);
      note_not_started(guest, i, reason);
    }
  }
}

// Whether the shell has not yet read that there is a command.
bool has_unread(const Shell& shell) {
  int waiting = 0;
  return shell.wake >= 0 && ioctl(shell.wake, FIONREAD, &waiting) == 0 && waiting > 0;
}

// The shell's minder was killed, perhaps by the command before this one. The command goes on, and
// the shell ends after it; as an orphan it is the guest's own child.
void adopt(Guest& guest, Shell& shell) {
  pid_t lost = shell.minder;
  guest.poller.remove(shell.report);
  shell.adopted = true;
  shell.unfit = true;
  shell.minder = 0;
  end_unminded(guest, lost);
}

// The shell is over: it ended, or there is no bash to run; or its minder was killed, and nothing
// was told. A status that it told before counts.
void end_shell(Guest& guest, std::uint32_t index, const Report* report) {
  Shell& shell = guest.shells[index];
  guest.poller.close(shell.report);
  while (shell.control >= 0 && hear(guest, shell)) {
  }
  bool starting = shell.state == ShellState::kStarting;
  bool again = (shell.unran || has_unread(shell)) && queue_again(guest, shell);
  guest.poller.close(shell.control);
  shell.state = ShellState::kFree;
  shell.restarted = shell.restarted || !starting;
  if (report == nullptr || shell.adopted) {
    pid_t minder = shell.minder;
    shell.minder = 0;
    shell.adopted = false;
    end_unminded(guest, minder);
  }
  if (!again) {
    if (shell.command != kNone) {
      note_directory(guest, shell, guest.commands[shell.command]);
    }
    finish(guest, shell, report != nullptr ? static_cast<int>(report->value) : SIGKILL);
  }
  close_files(guest, shell);
  shell.unfit = false;
  if (starting && !shell.given_up) {
    // Whoever waits for it cannot be served: every attempt would end the same way.
    refuse_waiting(guest, index,
                   report != nullptr ? *report : Report{ReportKind::kNotStarted, ECANCELED, 0});
    return;
  }
  run_next(guest, shell);
}

}  // namespace

bool start_in_shell(Guest& guest, std::uint32_t index, const protocol::Start& start,
                    protocol::Refusal& refusal, int& error_number) {
  Command& command = guest.commands[index];
  Shell* shell = find_shell(guest, start.session.empty() ? "default" : start.session);
  if (shell == nullptr) {
    refusal = protocol::Refusal::kTooMany;
    error_number = 0;
    return false;
  }
  command.shell = shell_index(guest, *shell);
  command.text = take_text(guest, start.text.size() + 1);
  if (command.text == nullptr) {
    refusal = protocol::Refusal::kNoShell;
    error_number = ENOMEM;
    return false;
  }
  memcpy(command.text, start.text.data(), start.text.size());
  command.text[start.text.size()] = '\0';
  command.text_size = start.text.size();
  command.state = CommandState::kQueued;
  command.deadline_us = now_us() + command.timeout_us;
  run_next(guest, *shell);
  return true;
}

void on_shell_control(Guest& guest, std::uint32_t index) {
  Shell& shell = guest.shells[index];
  hear(guest, shell);
  if (shell.control < 0 && shell.state == ShellState::kIdle) {
    replace(shell);  // nobody can reach it any more
  }
}

void on_shell_patience(Guest& guest, std::uint32_t index) {
  Shell& shell = guest.shells[index];
  shell.patience_us = open_input(guest, shell.command) ? 0 : now_us() + kPatienceUs;
  watch_output(guest, shell.command, 0);
  watch_output(guest, shell.command, 1);
  if (guest.freezer == kNone && has_unread(shell) && is_stopped(shell.pid)) {
    kill(shell.pid, SIGCONT);  // it was stopped before this command, by somebody else's job
  }
}

void on_shell_report(Guest& guest, std::uint32_t index) {
  Shell& shell = guest.shells[index];
  Report report;
  ssize_t n = read(shell.report, &report, sizeof report);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  bool told = n == static_cast<ssize_t>(sizeof report);
  if (told && report.kind == ReportKind::kStarted) {
    shell.pid = static_cast<pid_t>(report.value);
    shell.minder = static_cast<pid_t>(report.minder);
    Text<32> path;
    path.add("/proc/").add_number(report.value);
    shell.proc = open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    shell.childless = report.value;
    run_next(guest, shell);  // it may have been ready before its minder said so
    return;
  }
  if (!told && shell.state == ShellState::kBusy && !is_dying(shell.pid)) {
    adopt(guest, shell);
    return;
  }
  end_shell(guest, index, told ? &report : nullptr);
}

void on_shell_orphan_end(Guest& guest, pid_t pid, int status) {
  for (std::uint32_t i = 0; i < kMaxShells; ++i) {
    if (guest.shells[i].adopted && guest.shells[i].pid == pid) {
      Report report{ReportKind::kEnded, static_cast<std::uint32_t>(status), 0};
      end_shell(guest, i, &report);
    }
  }
}

void on_waiting_deadline(Guest& guest, std::uint32_t index) {
  const Command& command = guest.commands[index];
  Shell& shell = guest.shells[command.shell];
  if (shell.state != ShellState::kStarting) {
    if (command.client != kNone) {
      refuse(guest, command.client, command.channel, protocol::Refusal::kNoShell, EBUSY,
             "the shell is busy with another command");
    }
    free_command(guest, index);
    return;
  }
  // The next one in the queue gets another shell.
  forget_queued(guest, index, protocol::EndKind::kTimedOut);
  shell.given_up = true;
  if (shell.minder != 0) {
    end_descendants(shell.minder, shell.pid, 0);
  } else if (guest.spawner >= 0) {
    kill(guest.spawner_pid, SIGKILL);
  }
}

bool forget_queued(Guest& guest, std::uint32_t index, protocol::EndKind why) {
  Command& command = guest.commands[index];
  if (command.state != CommandState::kQueued) {
    return false;
  }
  end_waiting(guest, index);
  command.end.kind = why;
  begin_draining(guest, index);
  return true;
}

}  // namespace carrel::guest
