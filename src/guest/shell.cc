#include "guest/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/command.h"
#include "guest/processes.h"
#include "guest/program.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

// What bash runs. It is one line, so that a command's errors say "line 1", and it is parsed once,
// so that aliases cannot change it. Everything that it needs is tried after each command, in the
// loop's condition: if a command took it away (a function named "builtin", a disabled eval, a
// readonly variable), the loop ends, and bash exits with the status of the last command run, which
// is the right one. Descriptors 198 and 199 are closed while a command runs: bash keeps its own
// copies close-on-exec, so no program that the command starts has them.
constexpr char kDriver[] =
    "__carrel_status() { builtin return \"$1\"; }; readonly -f __carrel_status; "
    "shopt -s expand_aliases; "
    "while { builtin printf ' %s %d\\n' \"${__carrel_go[0]}\" \"$?\" >&198; "
    "__carrel_ok=; __carrel_go=; "
    "builtin mapfile -t -n 2 -u 198 __carrel_go && "
    "builtin mapfile -d '' -n 1 __carrel_text </proc/self/fd/199/text && "
    "builtin eval __carrel_ok=1 && [[ $__carrel_ok == 1 && -n ${__carrel_go[1]} ]] && "
    "{ __carrel_status 42; [[ $? == 42 ]]; }; } </dev/null >/dev/null 2>&1; do "
    "if __carrel_status \"${__carrel_go[1]}\"; then "
    "builtin eval \"${__carrel_text[0]}\" </proc/self/fd/199/in >/proc/self/fd/199/out "
    "2>/proc/self/fd/199/err 198>&- 199>&-; else "
    "builtin eval \"${__carrel_text[0]}\" </proc/self/fd/199/in >/proc/self/fd/199/out "
    "2>/proc/self/fd/199/err 198>&- 199>&-; fi; done";

void close_watched(const Guest& guest, int& fd) {
  if (fd >= 0) {
    guest.poller.remove(fd);
    close(fd);
    fd = -1;
  }
}

std::uint32_t shell_index(const Guest& guest, const Shell& shell) {
  return static_cast<std::uint32_t>(&shell - guest.shells.data());
}

Shell* find_shell(Guest& guest, std::string_view name) {
  Shell* free = nullptr;
  for (Shell& shell : guest.shells) {
    if (shell.name[0] != '\0' && std::string_view(shell.name) == name) {
      return &shell;
    }
    if (shell.name[0] == '\0' && free == nullptr) {
      free = &shell;
    }
  }
  if (free != nullptr) {
    memcpy(free->name, name.data(), name.size());
    free->name[name.size()] = '\0';
  }
  return free;
}

// The private directory of a shell: a place in the guest's own tmpfs that no path leads to.
int open_directory(Guest& guest, std::uint32_t index) {
  Text<24> name;
  name.add("shell").add_number(index);
  int base = guest.root.tmpfs[kGuestSlot];
  if (mkdirat(base, name.c_str(), 0700) != 0 && errno != EEXIST) {
    return -errno;
  }
  int fd = openat(base, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

int start_shell(Guest& guest, Shell& shell) {
  std::uint32_t index = shell_index(guest, shell);
  shell.directory = open_directory(guest, index);
  if (shell.directory < 0) {
    return shell.directory;
  }
  int control[2] = {-1, -1};
  int report[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) != 0) {
    return -errno;
  }
  if (pipe2(report, O_CLOEXEC) != 0) {
    int reason = -errno;
    close(control[0]);
    close(control[1]);
    return reason;
  }
  static constexpr char kArguments[] = "bash\0--noprofile\0--norc\0-c\0";
  static char arguments[sizeof kArguments + sizeof kDriver + 8];
  memcpy(arguments, kArguments, sizeof kArguments - 1);
  memcpy(arguments + sizeof kArguments - 1, kDriver, sizeof kDriver);
  memcpy(arguments + sizeof kArguments - 1 + sizeof kDriver, "bash", 5);
  protocol::Start start;
  start.kind = protocol::StartKind::kExec;
  start.timeout_ms = protocol::kMaxTimeoutMs;
  start.arguments = {6, {arguments, sizeof kArguments - 1 + sizeof kDriver + 5}};
  static unsigned char payload[sizeof arguments + 256];
  protocol::Writer writer(payload);
  protocol::write_start(writer, start);

  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  ProgramIo io{null, null, null, control[1], shell.directory};
  int result = spawn(guest, {reinterpret_cast<const char*>(payload), writer.size()}, io, report[1]);
  close(null);
  close(control[1]);
  close(report[1]);
  if (result < 0) {
    close(control[0]);
    close(report[0]);
    close(shell.directory);
    shell.directory = -1;
    return result;
  }
  fcntl(control[0], F_SETFL, O_NONBLOCK);
  fcntl(report[0], F_SETFL, O_NONBLOCK);
  shell.control = control[0];
  shell.report = report[0];
  shell.line_size = 0;
  shell.last_status = 0;
  shell.nonce[0] = '\0';
  shell.reported = false;
  shell.state = ShellState::kStarting;
  guest.poller.add(shell.control, EPOLLIN, Source::kShellControl, index);
  guest.poller.add(shell.report, EPOLLIN, Source::kShellReport, index);
  return 0;
}

bool make_fifo(int directory, const char* name, int& reader) {
  unlinkat(directory, name, 0);
  if (mkfifoat(directory, name, 0600) != 0) {
    return false;
  }
  reader = openat(directory, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  return reader >= 0;
}

bool write_text(int directory, const char* name, std::string_view data) {
  int fd = openat(directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) {
    return false;
  }
  bool written = write_whole(fd, data);
  close(fd);
  return written;
}

void make_nonce(char* nonce) {
  unsigned char bytes[8];
  getrandom(bytes, sizeof bytes, 0);
  for (int i = 0; i < 8; ++i) {
    nonce[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
    nonce[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
  }
  nonce[16] = '\0';
}

// Opens the command's outputs, its input and its text for the shell to find.
bool lay_out(Guest& guest, Shell& shell, std::uint32_t index) {
  Command& command = guest.commands[index];
  int out = -1;
  if (!make_fifo(shell.directory, "out", out)) {
    return false;
  }
  watch_output(guest, index, 0, out);
  if ((command.flags & protocol::kStartMerged) != 0) {
    unlinkat(shell.directory, "err", 0);
    if (linkat(shell.directory, "out", shell.directory, "err", 0) != 0) {
      return false;
    }
  } else {
    int err = -1;
    if (!make_fifo(shell.directory, "err", err)) {
      return false;
    }
    watch_output(guest, index, 1, err);
  }
  unlinkat(shell.directory, "in", 0);
  if ((command.flags & protocol::kStartStdin) != 0) {
    int reader = -1;
    if (!make_fifo(shell.directory, "in", reader)) {
      return false;
    }
    command.input = openat(shell.directory, "in", O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    command.input_reader = reader;
    if (command.input < 0) {
      return false;
    }
    guest.poller.add(command.input, 0, Source::kInput, index);
    on_input_ready(guest, index);
  } else if (!write_text(shell.directory, "in", {})) {
    return false;
  }
  return write_text(shell.directory, "text", {command.text, command.text_size});
}

void run_next(Guest& guest, Shell& shell);

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
  shell.reported = false;
  if (shell.restarted) {
    command.end.flags |= protocol::kExitShellRestarted;
    shell.restarted = false;
  }
  make_nonce(shell.nonce);
  Text<64> line;
  line.add(shell.nonce).add("\n").add_number(shell.last_status).add("\n");
  if (!lay_out(guest, shell, index) || !write_whole(shell.control, line.view())) {
    int reason = errno;
    kill(shell.pid, SIGKILL);
    note_not_started(guest, index, reason);
  }
  free(command.text);
  command.text = nullptr;
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
  if (next == kNone) {
    return;
  }
  if (shell.state == ShellState::kIdle) {
    begin(guest, shell, next);
  } else if (shell.state == ShellState::kFree) {
    int result = start_shell(guest, shell);
    if (result < 0) {
      guest.commands[next].state = CommandState::kRunning;
      guest.commands[next].started_us = now_us();
      note_not_started(guest, next, -result);
    }
  }
}

// Where the shell stands. A directory that was deleted has " (deleted)" behind its old name.
void note_directory(const Shell& shell, Command& command) {
  Text<64> link;
  link.add("/proc/").add_number(static_cast<std::uint64_t>(shell.pid)).add("/cwd");
  char path[protocol::kMaxPath];
  ssize_t n = readlink(link.c_str(), path, sizeof path);
  command.cwd = strndup(path, n < 0 ? 0 : static_cast<std::size_t>(n));
}

void finish(Guest& guest, Shell& shell, int wait_status) {
  std::uint32_t index = shell.command;
  shell.command = kNone;
  if (index == kNone) {
    return;
  }
  Command& command = guest.commands[index];
  if (command.input_reader >= 0) {
    close(command.input_reader);
    command.input_reader = -1;
  }
  if (command.state == CommandState::kRunning) {
    note_end(guest, index, wait_status);
  }
}

void handle_line(Guest& guest, Shell& shell, std::string_view line) {
  if (shell.state == ShellState::kStarting) {
    shell.state = ShellState::kIdle;
    run_next(guest, shell);
    return;
  }
  // Anything may have been written to this descriptor before the real answer, even on its line.
  std::size_t at = line.find(shell.nonce);
  if (shell.state != ShellState::kBusy || at == std::string_view::npos) {
    return;
  }
  line.remove_prefix(at + 16);
  std::uint32_t status = 0;
  if (line.size() < 2 || line.size() > 4 || line[0] != ' ') {
    return;
  }
  for (char c : line.substr(1)) {
    if (c < '0' || c > '9') {
      return;
    }
    status = status * 10 + static_cast<std::uint32_t>(c - '0');
  }
  shell.last_status = status & 255;
  shell.reported = true;
  note_directory(shell, guest.commands[shell.command]);
  shell.state = ShellState::kIdle;
  finish(guest, shell, static_cast<int>(shell.last_status << 8));
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
  command.text = static_cast<char*>(malloc(start.text.size() + 1));
  if (command.text == nullptr) {
    refusal = protocol::Refusal::kNoShell;
    error_number = ENOMEM;
    return false;
  }
  memcpy(command.text, start.text.data(), start.text.size());
  command.text_size = start.text.size();
  command.state = CommandState::kQueued;
  run_next(guest, *shell);
  return true;
}

void on_shell_control(Guest& guest, std::uint32_t index) {
  Shell& shell = guest.shells[index];
  char buffer[512];
  ssize_t n = read(shell.control, buffer, sizeof buffer);
  if (n <= 0) {
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      close_watched(guest, shell.control);
    }
    return;
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
}

void on_shell_report(Guest& guest, std::uint32_t index) {
  Shell& shell = guest.shells[index];
  Report report;
  ssize_t n = read(shell.report, &report, sizeof report);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n == static_cast<ssize_t>(sizeof report) && report.kind == ReportKind::kStarted) {
    shell.pid = static_cast<pid_t>(report.value);
    shell.minder = static_cast<pid_t>(report.minder);
    return;
  }
  // The shell is over: it ended, it was killed with its minder, or there is no bash to run.
  int status = n == static_cast<ssize_t>(sizeof report) ? static_cast<int>(report.value) : SIGKILL;
  bool never = n == static_cast<ssize_t>(sizeof report) && report.kind == ReportKind::kNotStarted;
  if (shell.control >= 0) {
    on_shell_control(guest, index);  // a status that it told before it ended counts
  }
  close_watched(guest, shell.report);
  close_watched(guest, shell.control);
  if (shell.directory >= 0) {
    close(shell.directory);
    shell.directory = -1;
  }
  bool starting = shell.state == ShellState::kStarting;
  shell.state = ShellState::kFree;
  shell.restarted = true;
  if (never || starting) {
    // Whoever waits for it cannot be served: every attempt would end the same way.
    for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
      Command& command = guest.commands[i];
      if (command.state == CommandState::kQueued && command.shell == index) {
        command.state = CommandState::kRunning;
        command.started_us = now_us();
        note_not_started(guest, i, never ? static_cast<int>(report.value) : ECANCELED);
      }
    }
    shell.restarted = false;
    return;
  }
  finish(guest, shell, status);
  run_next(guest, shell);
}

bool forget_queued(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.state != CommandState::kQueued) {
    return false;
  }
  command.state = CommandState::kRunning;
  command.started_us = now_us();
  command.end.kind = protocol::EndKind::kKilled;
  begin_draining(guest, index);
  return true;
}

}  // namespace carrel::guest
