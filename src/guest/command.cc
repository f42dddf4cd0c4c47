#include "guest/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/lockdown.h"
#include "guest/processes.h"
#include "guest/program.h"
#include "guest/runtime.h"

namespace carrel::guest {

namespace {

using protocol::EndKind;
using protocol::FrameType;

constexpr std::size_t kPiece = 32U << 10;

std::uint32_t output_index(std::uint32_t command, std::uint32_t stream) {
  return command * 2 + stream;
}

void close_watched(const Guest& guest, int& fd) {
  if (fd >= 0) {
    guest.poller.remove(fd);
    close(fd);
    fd = -1;
  }
}

// Whether the client still wants bytes that a new one would push out of the ring.
std::size_t room_for(const Command& command, const OutputStream& stream) {
  bool lossless = command.client != kNone && command.state != CommandState::kFinished;
  return lossless ? stream.ring.room(stream.cursor) : Ring::kCapacity;
}

void arm(const Guest& guest, std::uint32_t index, std::uint32_t which, bool on) {
  OutputStream& stream = const_cast<Guest&>(guest).commands[index].output[which];
  if (stream.fd >= 0 && stream.armed != on) {
    guest.poller.change(stream.fd, on ? EPOLLIN : 0, Source::kOutput, output_index(index, which));
    stream.armed = on;
  }
}

// Reads once. Returns false when there is nothing more to read now.
bool read_output(Guest& guest, std::uint32_t index, std::uint32_t which) {
  Command& command = guest.commands[index];
  OutputStream& stream = command.output[which];
  if (stream.fd < 0) {
    return false;
  }
  std::size_t room = room_for(command, stream);
  if (room == 0) {
    arm(guest, index, which, false);
    return false;
  }
  std::size_t size = 0;
  char* place = stream.ring.place(room, size);
  if (place == nullptr) {
    close_watched(guest, stream.fd);
    return false;
  }
  ssize_t n = read(stream.fd, place, size);
  if (n > 0) {
    std::size_t got = static_cast<std::size_t>(n);
    stream.ring.added(got);
    stream.drain -= got < stream.drain ? got : stream.drain;
    return true;
  }
  stream.drain = 0;
  // A terminal whose program is gone answers EIO.
  if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
    close_watched(guest, stream.fd);
  }
  return false;
}

// Whether the guest itself decided that the command ends.
bool ending(const Command& command) {
  return command.end.kind == EndKind::kTimedOut || command.end.kind == EndKind::kKilled;
}

bool drained(const Command& command) {
  return command.output[0].drain == 0 && command.output[1].drain == 0;
}

void tell_input_taken(Guest& guest, const Command& command) {
  if (command.client == kNone) {
    return;
  }
  unsigned char buffer[8];
  protocol::Writer writer(buffer);
  writer.u64(command.input_taken);
  guest.clients[command.client].send(command.channel, FrameType::kStdinTaken,
                                     {reinterpret_cast<const char*>(buffer), writer.size()});
}

void send_end(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  command.end.stdout_bytes = command.output[0].ring.end();
  command.end.stderr_bytes = command.output[1].ring.end();
  command.end.cwd = command.cwd == nullptr ? std::string_view() : std::string_view(command.cwd);
  unsigned char buffer[protocol::kMaxPath + 128];
  protocol::Writer writer(buffer);
  protocol::write_exit(writer, command.end);
  guest.clients[command.client].send(
      command.channel, FrameType::kExit,
      {reinterpret_cast<const char*>(buffer), writer.size()});
  command.follow_sent = true;
  command.client = kNone;
}

}  // namespace

std::uint32_t take_command(Guest& guest) {
  std::uint32_t oldest = kNone;
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    const Command& command = guest.commands[i];
    if (command.state == CommandState::kFree) {
      oldest = i;
      break;
    }
    if (command.state == CommandState::kFinished &&
        (oldest == kNone || command.id < guest.commands[oldest].id)) {
      oldest = i;
    }
  }
  if (oldest != kNone) {
    free_command(guest, oldest);
    guest.commands[oldest].id = guest.next_id++;
  }
  return oldest;
}

void free_command(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  for (OutputStream& stream : command.output) {
    close_watched(guest, stream.fd);
    stream.ring.reset();
  }
  close_watched(guest, command.report);
  close_watched(guest, command.input);
  free(command.pending);
  free(command.text);
  free(command.cwd);
  command = Command();
}

void watch_output(Guest& guest, std::uint32_t index, std::uint32_t which, int fd) {
  OutputStream& stream = guest.commands[index].output[which];
  stream.fd = fd;
  stream.armed = true;
  guest.poller.add(fd, EPOLLIN, Source::kOutput, output_index(index, which));
}

int open_output(Guest& guest, std::uint32_t index, std::uint32_t which) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return -errno;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  watch_output(guest, index, which, ends[0]);
  return ends[1];
}

int start_spawner(Guest& guest) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return -errno;
  }
  pid_t pid = fork();
  if (pid == 0) {
    Failure failure;
    for (std::uint32_t i = 0; i < guest.join_count; ++i) {
      // CRITICAL: outside of the workload's group its limits would not hold.
      if (!write_whole(guest.join[i], "0")) {
        _exit(1);
      }
    }
    if (!become_workload(guest.boot, guest.ruleset, failure)) {
      _exit(1);
    }
    dup2(ends[1], 3);
    fcntl(3, F_SETFD, FD_CLOEXEC);
    close_from(4);
    run_spawner(guest.boot, 3);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return -errno;
  }
  guest.spawner = ends[0];
  guest.poller.add(guest.spawner, 0, Source::kSpawner, 0);
  return 0;
}

int spawn(Guest& guest, std::string_view payload, const ProgramIo& io, int report) {
  if (guest.spawner >= 0) {
    int result = ask_spawner(guest.spawner, payload, io, report);
    if (result != -EPIPE && result != -ECONNRESET) {
      return result;
    }
    close_watched(guest, guest.spawner);
  }
  int result = start_spawner(guest);
  return result < 0 ? result : ask_spawner(guest.spawner, payload, io, report);
}

namespace {

// One-shot: the command is the guest's own child.
int fork_command(Guest& guest, const protocol::Start& start, const ProgramIo& io, int report,
                 pid_t& program) {
  program = fork();
  if (program != 0) {
    return program < 0 ? -errno : 0;
  }
  Failure failure;
  if (!become_workload(guest.boot, guest.ruleset, failure)) {
    Report message{ReportKind::kNotStarted, static_cast<std::uint32_t>(failure.error_number), 0};
    write_whole(report, {reinterpret_cast<const char*>(&message), sizeof message});
    _exit(126);
  }
  run_program(guest.boot, start, io, report);
}

int open_terminal(Guest& guest, std::uint32_t index, const protocol::Start& start) {
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  int unlock = 0;
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) != 0) {
    return -errno;
  }
  int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) {
    int reason = -errno;
    close(master);
    return reason;
  }
  struct winsize size {start.rows, start.columns, 0, 0};
  ioctl(master, TIOCSWINSZ, &size);
  watch_output(guest, index, 0, master);
  Command& command = guest.commands[index];
  command.input = fcntl(master, F_DUPFD_CLOEXEC, 3);
  guest.poller.add(command.input, 0, Source::kInput, index);
  return slave;
}

int open_io(Guest& guest, std::uint32_t index, const protocol::Start& start, ProgramIo& io) {
  if ((start.flags & protocol::kStartTerminal) != 0) {
    int slave = open_terminal(guest, index, start);
    io.input = slave;
    io.output = slave < 0 ? -1 : fcntl(slave, F_DUPFD_CLOEXEC, 3);
    io.error = slave < 0 ? -1 : fcntl(slave, F_DUPFD_CLOEXEC, 3);
    return slave < 0 ? slave : 0;
  }
  if ((start.flags & protocol::kStartStdin) != 0) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return -errno;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    io.input = ends[0];
    guest.commands[index].input = ends[1];
    guest.poller.add(ends[1], 0, Source::kInput, index);
  } else {
    io.input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  io.output = open_output(guest, index, 0);
  if (io.output < 0) {
    return io.output;
  }
  io.error = (start.flags & protocol::kStartMerged) != 0 ? fcntl(io.output, F_DUPFD_CLOEXEC, 3)
                                                         : open_output(guest, index, 1);
  return io.error < 0 ? io.error : 0;
}

void close_io(const ProgramIo& io) {
  for (int fd : {io.input, io.output, io.error}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

void tell_started(Guest& guest, std::uint32_t index) {
  const Command& command = guest.commands[index];
  if (command.client == kNone) {
    return;
  }
  unsigned char buffer[12];
  protocol::Writer writer(buffer);
  writer.u64(command.id);
  writer.u32(static_cast<std::uint32_t>(command.program));
  guest.clients[command.client].send(command.channel, FrameType::kStarted,
                                     {reinterpret_cast<const char*>(buffer), writer.size()});
}

}  // namespace

void start_exec(Guest& guest, std::uint32_t index, const protocol::Start& start,
                std::string_view payload) {
  Command& command = guest.commands[index];
  command.state = CommandState::kRunning;
  command.started_us = now_us();
  command.started_wall_ms = wall_clock_ms();
  command.deadline_us = command.started_us + command.timeout_us;
  ProgramIo io;
  int ends[2] = {-1, -1};
  int result = pipe2(ends, O_CLOEXEC) != 0 ? -errno : open_io(guest, index, start, io);
  if (result == 0) {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    command.report = ends[0];
    guest.poller.add(command.report, EPOLLIN, Source::kReport, index);
    result = guest.one_shot() ? fork_command(guest, start, io, ends[1], command.program)
                              : spawn(guest, payload, io, ends[1]);
  }
  close_io(io);
  if (ends[1] >= 0) {
    close(ends[1]);
  }
  if (result < 0) {
    note_not_started(guest, index, -result);
    return;
  }
  tell_started(guest, index);
}

void on_output(Guest& guest, std::uint32_t index, std::uint32_t stream) {
  // A bounded number of reads, so that a flood does not keep others waiting.
  for (int i = 0; i < 8 && read_output(guest, index, stream); ++i) {
  }
  pump(guest, index);
}

void on_report(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  Report report;
  ssize_t n = read(command.report, &report, sizeof report);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n != static_cast<ssize_t>(sizeof report)) {
    close_watched(guest, command.report);
    // In a long-lived sandbox the end comes this way; without it the minder was killed.
    if (!guest.one_shot() && command.state == CommandState::kRunning) {
      note_end(guest, index, SIGKILL);
    }
    return;
  }
  switch (report.kind) {
    case ReportKind::kStarted:
      command.program = static_cast<pid_t>(report.value);
      command.minder = static_cast<pid_t>(report.minder);
      if (ending(command)) {
        end_descendants(command.minder, 0, 0);
      }
      break;
    case ReportKind::kNotStarted:
      note_not_started(guest, index, static_cast<int>(report.value));
      break;
    case ReportKind::kEnded:
      note_end(guest, index, static_cast<int>(report.value));
      break;
  }
}

void on_child_end(Guest& guest, pid_t pid, int status) {
  for (std::uint32_t i = 0; i < kMaxCommands; ++i) {
    Command& command = guest.commands[i];
    if (guest.one_shot() && command.state == CommandState::kRunning && command.program == pid) {
      on_report(guest, i);  // a failed exec is told there and must win over the exit status
      if (command.state == CommandState::kRunning) {
        note_end(guest, i, status);
      }
    }
  }
}

void note_end(Guest& guest, std::uint32_t index, int wait_status) {
  Command& command = guest.commands[index];
  protocol::Exit& end = command.end;
  if (!ending(command)) {
    end.kind = WIFSIGNALED(wait_status) ? EndKind::kSignaled : EndKind::kExited;
  }
  end.signal = WIFSIGNALED(wait_status) ? static_cast<std::uint32_t>(WTERMSIG(wait_status)) : 0;
  end.code = WIFEXITED(wait_status) ? static_cast<std::uint32_t>(WEXITSTATUS(wait_status)) : 0;
  begin_draining(guest, index);
}

void end_command(Guest& guest, std::uint32_t index, EndKind why) {
  Command& command = guest.commands[index];
  if (ending(command)) {
    return;
  }
  command.end.kind = why;
  command.deadline_us = 0;
  if (guest.one_shot()) {
    kill(-1, SIGKILL);  // everything in the sandbox but the guest
  } else if (command.shell != kNone) {
    const Shell& shell = guest.shells[command.shell];
    end_descendants(shell.minder, shell.pid, command.started_ticks);
  } else if (command.minder != 0) {
    end_descendants(command.minder, 0, 0);
  }
}

void note_not_started(Guest& guest, std::uint32_t index, int error_number) {
  Command& command = guest.commands[index];
  command.end.kind = EndKind::kNotStarted;
  command.end.error_number = static_cast<std::uint32_t>(error_number);
  begin_draining(guest, index);
}

void begin_draining(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.state != CommandState::kRunning) {
    return;
  }
  command.state = CommandState::kDraining;
  command.deadline_us = 0;
  command.end.duration_us = now_us() - command.started_us;
  close_watched(guest, command.input);
  for (std::uint32_t which = 0; which < 2; ++which) {
    int waiting = 0;
    OutputStream& stream = command.output[which];
    if (stream.fd >= 0 && ioctl(stream.fd, FIONREAD, &waiting) == 0 && waiting > 0) {
      stream.drain = static_cast<std::uint64_t>(waiting);
    }
  }
  pump(guest, index);
}

void pump(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  for (bool again = true; again;) {
    again = false;
    if (command.state == CommandState::kDraining) {
      for (std::uint32_t which = 0; which < 2; ++which) {
        while (command.output[which].drain > 0 && read_output(guest, index, which)) {
        }
      }
    }
    if (command.client == kNone) {
      break;
    }
    Client& client = guest.clients[command.client];
    for (std::uint32_t which = 0; which < 2; ++which) {
      OutputStream& stream = command.output[which];
      while (stream.cursor < stream.ring.end()) {
        unsigned char head[9];
        protocol::Writer writer(head);
        writer.u8(static_cast<std::uint8_t>(which + 1));
        if (stream.cursor < stream.ring.start()) {
          stream.cursor = stream.ring.start();
        }
        writer.u64(stream.cursor);
        std::string_view piece = stream.ring.from(stream.cursor, kPiece);
        if (!client.send(command.channel, FrameType::kOutput,
                         {reinterpret_cast<const char*>(head), sizeof head}, piece)) {
          break;
        }
        stream.cursor += piece.size();
        again = command.state == CommandState::kDraining && !drained(command);
      }
      arm(guest, index, which, true);
    }
  }
  if (command.state == CommandState::kDraining && drained(command)) {
    command.state = CommandState::kFinished;
  }
  if (command.state == CommandState::kFinished && command.client != kNone &&
      command.output[0].cursor == command.output[0].ring.end() &&
      command.output[1].cursor == command.output[1].ring.end()) {
    send_end(guest, index);
  }
}

bool give_input(Guest& guest, std::uint32_t index, std::string_view data) {
  Command& command = guest.commands[index];
  std::size_t kept = command.pending_size - command.pending_start;
  if (kept + data.size() > protocol::kInputWindow) {
    return false;
  }
  if (command.input < 0 || data.empty()) {
    return true;
  }
  char* grown = static_cast<char*>(malloc(kept + data.size()));
  if (grown == nullptr) {
    return false;
  }
  if (kept > 0) {
    memcpy(grown, command.pending + command.pending_start, kept);
  }
  memcpy(grown + kept, data.data(), data.size());
  free(command.pending);
  command.pending = grown;
  command.pending_start = 0;
  command.pending_size = kept + data.size();
  on_input_ready(guest, index);
  return true;
}

void on_input_ready(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.input < 0) {
    return;
  }
  std::size_t size = command.pending_size - command.pending_start;
  if (size > 0) {
    ssize_t n = write(command.input, command.pending + command.pending_start, size);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      close_watched(guest, command.input);  // the program closed its stdin: the rest is dropped
      n = static_cast<ssize_t>(size);
    }
    if (n > 0) {
      command.pending_start += static_cast<std::size_t>(n);
      command.input_taken += static_cast<std::uint64_t>(n);
      tell_input_taken(guest, command);
    }
  }
  if (command.input < 0) {
    return;
  }
  bool waiting = command.pending_start < command.pending_size;
  guest.poller.change(command.input, waiting ? EPOLLOUT : 0U, Source::kInput, index);
  if (!waiting && command.input_closing) {
    close_watched(guest, command.input);
  }
}

void close_input(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (command.pending_start == command.pending_size) {
    close_watched(guest, command.input);
  } else {
    command.input_closing = true;
  }
}

}  // namespace carrel::guest
