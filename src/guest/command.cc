#include "guest/command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/memory.h"
#include "guest/processes.h"
#include "guest/program.h"
#include "guest/requests.h"
#include "guest/runtime.h"
#include "guest/wants.h"

namespace carrel::guest {

namespace {

using protocol::EndKind;

// How long after its processes were killed the end of a command may take.
constexpr std::uint64_t kPatienceUs = 1'000'000;

constexpr int kMaxSignal = 64;

std::uint64_t signal_bit(int signal) { return std::uint64_t{1} << (signal - 1); }

// Whether the guest itself decided that the command ends.
bool ending(const Command& command) {
  return command.end.kind == EndKind::kTimedOut || command.end.kind == EndKind::kKilled;
}

// Where no cgroup counts refused forks: whether the processes that a failed command leaves behind
// were, with itself, as many as there may be.
bool at_process_limit(const Guest& guest) {
  return guest.boot.memory_watch_bytes != 0 &&
         look_at_memory(guest.root, Look::kQuick).tasks + 1 >= guest.boot.processes;
}

// Nobody asks for the end of a file worker: its client has talked to it.
void forget_worker(Guest& guest, std::uint32_t index) {
  const Command& command = guest.commands[index];
  if (command.kind == protocol::StartKind::kFiles && command.state == CommandState::kFinished) {
    free_command(guest, index);
  }
}

}  // namespace

std::uint32_t take_command(Guest& guest) {
  forget_wants(guest, now_us());
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
  for (Watcher& watcher : guest.watchers) {
    if (watcher.command == index) {
      refuse(guest, watcher.client, watcher.channel, protocol::Refusal::kUnknown, 0,
             "newer commands took the place of this one");
      watcher = Watcher();
    }
  }
  for (OutputStream& stream : command.output) {
    guest.poller.close(stream.fd);
    stream.ring.reset();
  }
  guest.poller.close(command.report);
  guest.poller.close(command.input);
  free(command.pending);
  free(command.text);
  free(command.workdir);
  if (command.cwd != command.near_cwd) {
    free(command.cwd);
  }
  command = Command();
}

void send_signal(Command& command, int signal) {
  if (command.program > 1) {
    kill(-command.program, signal);
  } else {
    command.early_signals |= signal_bit(signal);
  }
}

void on_report(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  Report report;
  ssize_t n = read(command.report, &report, sizeof report);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n != static_cast<ssize_t>(sizeof report)) {
    guest.poller.close(command.report);
    // In a long-lived sandbox the end comes this way; without it the minder was killed.
    if (!guest.one_shot() && command.state == CommandState::kRunning) {
      end_unminded(guest, command.minder);
      note_end(guest, index, SIGKILL);
    }
    forget_worker(guest, index);
    return;
  }
  switch (report.kind) {
    case ReportKind::kStarted:
      command.program = static_cast<pid_t>(report.value);
      command.minder = static_cast<pid_t>(report.minder);
      if (ending(command)) {
        end_descendants(command.minder, 0, 0);
      }
      for (int signal = 1; signal <= kMaxSignal; ++signal) {
        if ((command.early_signals & signal_bit(signal)) != 0) {
          send_signal(command, signal);
        }
      }
      break;
    case ReportKind::kNotStarted:
      note_not_started(guest, index, static_cast<int>(report.value));
      break;
    case ReportKind::kEnded:
      note_end(guest, index, static_cast<int>(report.value));
      break;
    case ReportKind::kNoWorkdir:
      refuse_for_workdir(guest, index, static_cast<int>(report.value));
      break;
  }
  forget_worker(guest, index);
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

void end_unminded(const Guest& guest, pid_t minder) {
  pid_t minded[kMaxCommands + kMaxShells + 1];
  std::size_t count = 0;
  if (guest.spawner >= 0) {
    minded[count++] = guest.spawner_pid;
  }
  // A minder outlives its command for as long as the command left something behind.
  for (const Command& command : guest.commands) {
    if (command.minder != 0 && (command.report >= 0 || command.state != CommandState::kRunning)) {
      minded[count++] = command.minder;
    }
  }
  for (const Shell& shell : guest.shells) {
    if (shell.minder != 0 || shell.adopted) {
      minded[count++] = shell.adopted ? shell.pid : shell.minder;
    }
  }
  end_all_but(minded, count, minder);
}

void refuse_for_workdir(Guest& guest, std::uint32_t index, int error_number) {
  const Command& command = guest.commands[index];
  if (command.client != kNone) {
    Text<protocol::kMaxReason> text;
    text.add("cannot start in the directory '");
    text.add(command.workdir == nullptr ? guest.boot.workdir : command.workdir).add("'");
    refuse(guest, command.client, command.channel, protocol::Refusal::kNoWorkdir, error_number,
           text.view());
  }
  free_command(guest, index);
}

void note_end(Guest& guest, std::uint32_t index, int wait_status) {
  Command& command = guest.commands[index];
  protocol::Exit& end = command.end;
  if (!ending(command)) {
    end.kind = WIFSIGNALED(wait_status) ? EndKind::kSignaled : EndKind::kExited;
  }
  end.signal = WIFSIGNALED(wait_status) ? static_cast<std::uint32_t>(WTERMSIG(wait_status)) : 0;
  end.code = WIFEXITED(wait_status) ? static_cast<std::uint32_t>(WEXITSTATUS(wait_status)) : 0;
  if (wait_status != 0 && !ending(command) && at_process_limit(guest)) {
    end.flags |= protocol::kExitProcessLimit;
  }
  const bool failed = wait_status != 0 && end.kind != EndKind::kKilled;
  if (!failed && end.kind != EndKind::kTimedOut) {
    forget_wants_soon(guest);
  } else if (wanted_a_network(guest)) {
    end.flags |= protocol::kExitNoNetwork;
  }
  if (wait_status != 0 && !ending(command) && is_full(guest.root)) {
    end.flags |= protocol::kExitFilesFull;
  }
  begin_draining(guest, index);
}

void end_command(Guest& guest, std::uint32_t index, EndKind why) {
  Command& command = guest.commands[index];
  if (ending(command)) {
    return;
  }
  command.end.kind = why;
  command.deadline_us = now_us() + kPatienceUs;
  if (guest.one_shot()) {
    kill(-1, SIGKILL);  // everything in the sandbox but the guest
  } else if (command.shell != kNone) {
    const Shell& shell = guest.shells[command.shell];
    end_descendants(shell.minder, shell.pid, command.started_ticks);
  } else if (command.minder != 0) {
    end_descendants(command.minder, 0, 0);
  }
}

void on_deadline(Guest& guest, std::uint32_t index) {
  Command& command = guest.commands[index];
  if (!ending(command)) {
    end_command(guest, index, EndKind::kTimedOut);
    return;
  }
  // Who should tell the end does not: somebody stopped it. Its own end tells as much.
  command.deadline_us = 0;
  pid_t minder = command.minder;
  if (command.shell != kNone) {
    const Shell& shell = guest.shells[command.shell];
    minder = shell.adopted ? shell.pid : shell.minder;
  }
  if (minder == 0 && guest.spawner >= 0) {
    minder = guest.spawner_pid;
  }
  if (minder > 1) {
    kill(minder, SIGKILL);
  }
}

void flag_running(Guest& guest, std::uint8_t flag) {
  for (Command& command : guest.commands) {
    if (command.state == CommandState::kRunning) {
      command.end.flags |= flag;
    }
  }
}

void note_not_started(Guest& guest, std::uint32_t index, int error_number) {
  Command& command = guest.commands[index];
  if (!ending(command)) {
    command.end.kind = EndKind::kNotStarted;
  }
  command.end.error_number = static_cast<std::uint32_t>(error_number);
  if (error_number == EAGAIN) {  // what a fork beyond the limit answers
    command.end.flags |= protocol::kExitProcessLimit;
  }
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
  guest.poller.close(command.input);
  for (std::uint32_t which = 0; which < 2; ++which) {
    int waiting = 0;
    OutputStream& stream = command.output[which];
    if (stream.resting) {
      continue;
    }
    if (stream.fd >= 0 && ioctl(stream.fd, FIONREAD, &waiting) == 0 && waiting > 0) {
      stream.drain = static_cast<std::uint64_t>(waiting);
    }
    // What background jobs write later belongs to this command, too.
    watch_output(guest, index, which);
  }
  pump(guest, index);
}

}  // namespace carrel::guest
